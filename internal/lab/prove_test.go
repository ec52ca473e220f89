package lab_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

// Every test runs in `make test` or in `make prove`: one that asks for the latter and is not named for it
// would run in neither, and so would one in a module that go.work does not use and the Makefile does not name.
// One that is named for it and does not ask would run in both.
func TestWhatAsksForProveIsRunByIt(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	work, err := os.ReadFile("../../go.work")
	require.NoError(t, err)
	named := regexp.MustCompile(`(?m)^PROVE := '(.*)'$`).FindSubmatch(makefile)
	require.NotNil(t, named, "the Makefile says which tests those are")
	prove := regexp.MustCompile(string(named[1]))
	head := regexp.MustCompile(`^func (\w+)\(`)
	found := 0
	require.NoError(t, filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		function := ""
		asks := strings.Contains(string(text), "\tlab.NeedProve(")
		if asks {
			module := moduleOf(string(work), path)
			runs := " -C " + strings.TrimPrefix(module, "../../") + " "
			assert.True(t, module == "" || strings.Contains(string(makefile), runs), "make prove does not run %s", path)
		}
		for line := range strings.Lines(string(text)) {
			if name := head.FindStringSubmatch(line); name != nil {
				function = name[1]
				if prove.MatchString(function) {
					assert.True(t, asks, "%s of %s does not call lab.NeedProve", function, path)
				}
			}
			if strings.Contains(line, "lab.NeedProve(") && strings.HasPrefix(strings.TrimSpace(line), "lab.") {
				found++
				if strings.HasPrefix(function, "Test") { // else, helpers of such tests
					assert.Regexp(t, prove, function, path)
				}
			}
			if strings.Contains(line, `"`+lab.ProveEnv+`"`) {
				assert.Fail(t, "call lab.NeedProve instead of reading "+lab.ProveEnv, path)
			}
		}
		return err
	}))
	assert.NotZero(t, found)
}

// moduleOf returns the directory of the module that path is in; "": go.work uses it.
func moduleOf(work, path string) string {
	for dir := filepath.Dir(path); dir != filepath.Clean("../.."); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			if strings.Contains(work, "\t./"+strings.TrimPrefix(dir, "../../")+"\n") {
				return ""
			}
			return dir
		}
	}
	return ""
}
