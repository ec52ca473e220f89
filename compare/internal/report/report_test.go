package report_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/compare/internal/check"
	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/compare/internal/report"
)

// sample is some trials of a real run; with declared set, as if Redis declared
// what it does not.
func sample(t *testing.T, declared bool) *history.Report {
	t.Helper()
	var real struct {
		Run    history.Run
		Events []history.Event
	}
	text, err := os.ReadFile("testdata/run.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &real))
	real.Run.Services[0].Declared.SurvivesClockJump = declared
	return check.Check(&real.Run, real.Events)
}

func table(t *testing.T, r *history.Report) string {
	t.Helper()
	var out strings.Builder
	require.NoError(t, report.Table(&out, r))
	return out.String()
}

// The table has the worst first, and says what was declared, what was broken,
// and what could not be tried.
func TestTheTable(t *testing.T) {
	text := table(t, sample(t, true))
	lines := strings.Split(text, "\n")
	assert.Regexp(t, `^ +redis +etcd$`, lines[0])
	assert.Regexp(t, `^exclusion: clock-jump +BROKEN 1 of 1 +-$`, lines[1])
	assert.Regexp(t, `(?m)^exclusion: fail-over +broken 1 of 1 +-$`, text)
	assert.Regexp(t, `(?m)^exclusion: holder-killed +held · 1 +-$`, text)
	assert.Regexp(t, `(?m)^fencing: \d+ ways +held · \d+ +held · \d+$`, text)
	assert.Contains(t, text, "\n1 of 31 promises BROKEN: redis: exclusion under clock-jump. redis let two holders in after "+
		"a restart without its data and after a fail-over, which it does not promise to prevent.\n")
	assert.Contains(t, text, "zookeeper: no ZooKeeper here: apt-get install zookeeper")

	text = table(t, sample(t, false))
	assert.NotContains(t, text, "BROKEN 1")
	assert.Contains(t, text, "\nredis let two holders in after a restart without its data, after a fail-over and under "+
		"clock-jump, which it does not promise to prevent. No service broke a promise: 28 checked.\n")
}

// The same histories give the same report, each time.
func TestVerdictsDoNotChange(t *testing.T) {
	first := sample(t, true)
	for range 5 {
		require.Equal(t, first, sample(t, true))
	}
}

// Of many services, four stand beside each other.
func TestTheTableFits(t *testing.T) {
	r := sample(t, true)
	r.Run.Services = nil
	for i := range 9 {
		r.Run.Services = append(r.Run.Services, history.Service{Name: fmt.Sprint("service", i)})
	}
	for i := range r.Rows {
		r.Rows[i].Cells = slices.Repeat(r.Rows[i].Cells[:1], 9)
	}
	text := table(t, r)
	assert.Regexp(t, `(?m)^ +service0 +service1 +service2 +service3$`, text)
	assert.Regexp(t, `(?m)^ +service8$`, text)
	for _, line := range strings.Split(text[:strings.Index(text, "promise")], "\n") {
		assert.LessOrEqual(t, utf8.RuneCountInString(line), 100)
	}
}

// The files: the report, which comes back as it was, and a page with all of it,
// which no string of the report can end.
func TestTheFiles(t *testing.T) {
	dir := t.TempDir()
	r := sample(t, true)
	r.Run.Machine = `locker compare '</script><script>alert(1)</script>' /*program*/`
	require.NoError(t, report.Save(r, dir))
	b, err := os.ReadFile(filepath.Join(dir, history.ReportFile))
	require.NoError(t, err)
	got := new(history.Report)
	require.NoError(t, json.Unmarshal(b, got))
	assert.Equal(t, r, got)
	page, err := os.ReadFile(filepath.Join(dir, history.PageFile))
	require.NoError(t, err)
	assert.Equal(t, 2, strings.Count(string(page), "</script>"))
	assert.NotContains(t, string(page), "http://127")
	assert.NotContains(t, string(page), "https://")
}
