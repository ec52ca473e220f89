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

// A test that asks for `make prove` and is not named for it would never run.
func TestWhatAsksForProveIsRunByIt(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
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
		for line := range strings.Lines(string(text)) {
			if name := head.FindStringSubmatch(line); name != nil {
				function = name[1]
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
