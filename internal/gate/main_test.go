package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const program = `package p

import (
	"os"
	"os/signal"
	"testing"
)

func TestWell(t *testing.T) { t.Log("all is well"); t.Log("REPEATED: the machine stalled") }

// It panics where no test is told of it.
func TestInTheBackground(t *testing.T) {
	if os.Getenv("PANIC") == "" {
		return
	}
	go func() { panic("WHY") }()
	select {}
}

// It fails as often as there are letters in the file.
func TestTimes(t *testing.T) {
	t.Run("of it", func(t *testing.T) {
		if signal.Ignored(os.Interrupt) {
			t.Error("SIGINT is ignored")
		}
		left, _ := os.ReadFile("left")
		if len(left) > 0 {
			_ = os.WriteFile("left", left[1:], 0o600)
			reason, _ := os.ReadFile("reason")
			t.Error(string(reason))
		}
	})
}
`

var dir string // of all tests: what is the same in them is linked once

func TestMain(m *testing.M) {
	become(os.Args[1:])
	dir, _ = os.MkdirTemp("", "gate-")
	status := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

// written makes a module of the program, in two packages with the same name.
func written(t *testing.T, left, reason string) {
	t.Helper()
	for name, text := range map[string]string{"go.mod": "module p\n\ngo 1.26\n", "p_test.go": program, "left": left,
		"reason": reason, "q/p/p_test.go": program, "q/p/left": "x", "without/tests.go": "package without\n"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
}

func TestWhatFailedWhileTheMachineStalledIsTriedAgain(t *testing.T) {
	stalls := &meter{best: time.Millisecond, samples: []sample{{at: time.Now().Add(time.Hour),
		took: chunks * time.Millisecond, late: time.Second}}}
	works := &meter{best: time.Millisecond, samples: []sample{{at: time.Now().Add(time.Hour),
		took: chunks * time.Millisecond, late: time.Millisecond}}}
	for _, c := range []struct {
		name, left, reason string
		meter              *meter
		passes             bool
		tries              int
	}{
		{"passes", "", "it is late", works, true, 1},
		{"no stall", "x", "it is late", works, false, 1},
		{"a stall", "x", "it is late", stalls, true, 2},
		{"a stall, and another", "xx", "it is late", stalls, true, 3},
		{"a stall each time", "xxxxxx", "it is late", stalls, false, 3},
		{"a race is no stall", "x", "WARNING: DATA RACE", stalls, false, 1},
		{"it does not build", "x", "", stalls, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			written(t, c.left, c.reason)
			builds := c.reason != ""
			if !builds {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "p_test.go"), []byte("package p\n\nvar _ = nothing\n"), 0o600))
			}
			var out strings.Builder
			g := gate{meter: c.meter, out: &out, dir: dir, bins: dir}
			assert.Equal(t, c.passes, g.run(group{timeout: time.Minute, atOnce: 1, packages: []string{"."}}), out.String())
			assert.Equal(t, c.tries, 1+strings.Count(out.String(), "alone:"), out.String())
			assert.Equal(t, builds && !c.passes, strings.Contains(out.String(), "FAILED: 1"), out.String())
			assert.NotContains(t, out.String(), "all is well")
			assert.Equal(t, builds, strings.Contains(out.String(), "p TestWell: p_test.go:9: REPEATED: the machine"), out.String())
			if c.left != "" {
				_, summary, _ := strings.Cut(out.String(), "FAILED: 1")
				assert.Contains(t, out.String(), cmp.Or(c.reason, "undefined: nothing"))
				if builds && !c.passes {
					assert.Contains(t, summary, "p_test.go:", "where")
				}
			}
		})
	}
}

func TestWhatEndsTheWholeProcessIsTold(t *testing.T) {
	t.Setenv("PANIC", "yes")
	var out strings.Builder
	written(t, "", "")
	g := gate{meter: &meter{best: time.Millisecond}, out: &out, dir: dir, bins: dir}
	assert.False(t, g.run(group{timeout: time.Minute, atOnce: 1, packages: []string{"."}}))
	_, summary, _ := strings.Cut(out.String(), "FAILED: 1")
	assert.Contains(t, summary, "panic: WHY", out.String())
	assert.Contains(t, summary, "TestInTheBackground", "where")
}

func TestTheMeterSeesABusyMachine(t *testing.T) {
	m := &meter{best: time.Millisecond}
	at := time.Now()
	for range 2 * window {
		m.samples = append(m.samples, sample{at: at, took: 7 * chunks * time.Millisecond})
	}
	assert.False(t, m.since(at).long())
	for range window {
		m.samples = append(m.samples, sample{at: at, took: 12 * chunks * time.Millisecond})
	}
	assert.InDelta(t, 12, m.since(at).factor, 0.1)
	assert.True(t, m.since(at).long())
	assert.False(t, m.since(at.Add(time.Second)).long(), "that was before")
	m = &meter{best: time.Millisecond}
	for i := range 2 * window {
		m.samples = append(m.samples, sample{at: at.Add(time.Duration(i) * every), took: chunks * time.Millisecond})
	}
	last := &m.samples[len(m.samples)-1]
	last.took, last.late = 11*chunks*time.Millisecond, 100*time.Millisecond
	assert.False(t, m.since(last.at).long(), "one hiccup in a brief test")
}

func TestAStallWhileATestWaitsForItsTurnIsNotItsOwn(t *testing.T) {
	at := time.Now()
	m := &meter{best: time.Millisecond, samples: []sample{{at: at, took: chunks * time.Millisecond, late: time.Second},
		{at: at.Add(2 * time.Second), took: chunks * time.Millisecond}}}
	lines := func(actions ...string) string {
		var text strings.Builder
		for i, action := range actions {
			line, err := json.Marshal(event{Time: at.Add(time.Duration(i) * time.Second), Action: action, Package: "p", Test: "TestX"})
			require.NoError(t, err)
			fmt.Fprintf(&text, "%s\n", line)
		}
		return text.String()
	}
	for waits, text := range map[bool]string{true: lines("run", "cont", "fail"), false: lines("run", "output", "fail")} {
		r := read(m, "p", strings.NewReader(text), io.Discard)
		require.Len(t, r.failed, 1)
		assert.Equal(t, !waits, r.failed[0].stall.long())
	}
}

// A suite that plays too few of its histories, or none, proves nothing.
func TestHistoriesSayHowManyScriptsTheyPlayed(t *testing.T) {
	t.Setenv("CONFORMANCE_SEED", "1")
	for line, passes := range map[string]bool{"run.go:54: PLAYED: 71 scripts, 71 at least, on etcd in 20.1s": true,
		"run.go:54: PLAYED: 70 scripts, 71 at least, on etcd in 20.1s": false, "well": false} {
		var text strings.Builder
		again := "run.go:54: REPEATED: the machine, or the service, stalled for 206ms: 1 of 17 rules broken in 1 script"
		for _, e := range []event{{Action: "output", Output: line}, {Action: "output", Output: again}, {Action: "pass"}} {
			e.Package, e.Test = "p", "TestConformance/histories"
			require.NoError(t, json.NewEncoder(&text).Encode(e))
		}
		r := read(&meter{}, "p", strings.NewReader(text.String()), io.Discard)
		played := slices.ContainsFunc(r.failed, func(o outcome) bool { return strings.Contains(o.text, "TestConformance/histories") })
		assert.Equal(t, passes, !played, line)
		var open []string
		for _, said := range []string{line, again} {
			if said != "well" {
				open = append(open, "p TestConformance/histories: "+said)
			}
		}
		assert.Equal(t, open, r.open)
	}
}

func TestTheMeterSeesADiskThatStandsStill(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "block"))
	require.NoError(t, err)
	defer f.Close()
	m := &meter{}
	m.write(f)
	assert.Positive(t, m.disk)
	m.disk = max(m.disk, longWrite) // as if it had taken so long
	m.measure(0)
	after := time.Now()
	m.measure(0)
	assert.Zero(t, m.since(after).disk, "that was before")
	assert.GreaterOrEqual(t, m.since(time.Time{}).disk, longWrite)
	assert.True(t, slowness{disk: longWrite}.long())
	assert.False(t, slowness{disk: longWrite - 1}.long())
}

// Groups with flags of their own are tested in one run: packages with the same name keep binaries of their own.
func TestGroupsOfPackages(t *testing.T) {
	groups, err := parse(strings.Fields("-p 3 -race -short -ldflags=-w -timeout 15m -skip ^TestTimes ./... -- -after -C q/.. -nice -run ^TestTimes . ./q/p"))
	require.NoError(t, err)
	assert.Equal(t, []group{{atOnce: 3, timeout: 15 * time.Minute, build: []string{"-race", "-ldflags=-w"},
		flags: []string{"-test.short", "-test.skip=^TestTimes"}, packages: []string{"./..."}}, {after: true, dir: "q/..", atOnce: runtime.GOMAXPROCS(0), nice: true,
		timeout: 10 * time.Minute, flags: []string{"-test.run=^TestTimes"}, packages: []string{".", "./q/p"}}}, groups)
	groups[0].build = groups[1].build // no -race, for which a C compiler is needed
	written(t, "", "")
	var out strings.Builder
	g := gate{meter: &meter{best: time.Millisecond}, out: &writer{to: &out}, dir: dir, bins: dir}
	assert.False(t, g.run(groups...))
	for line, times := range map[string]int{"ok   p ": 2, "ok   p/q/p ": 1, "FAIL p/q/p ": 1, "--- p/q/p TestTimes": 1} {
		assert.Equal(t, times, strings.Count(out.String(), line), "%s in %s", line, &out)
	}
	first := strings.Index(out.String(), "ok   p/q/p ")
	assert.Less(t, first, strings.Index(out.String(), "FAIL p/q/p "), "groups one after the other")
	assert.Less(t, first, strings.LastIndex(out.String(), "ok   p "), "groups one after the other")
}
