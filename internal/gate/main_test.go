package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const program = `package p

import (
	"os"
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
		left, _ := os.ReadFile("left")
		if len(left) > 0 {
			_ = os.WriteFile("left", left[1:], 0o600)
			t.Error("REASON")
		}
	})
}
`

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
		{"it does not build", "x", `" + nothing + "`, stalls, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{
				"go.mod": "module p\n\ngo 1.26\n", "p_test.go": strings.ReplaceAll(program, "REASON",
					c.reason), "left": c.left,
			} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}
			var out strings.Builder
			g := gate{meter: c.meter, out: &out, dir: dir}
			assert.Equal(t, c.passes, g.run([]string{"-timeout", "1m", "."}), out.String())
			assert.Equal(t, c.tries, 1+strings.Count(out.String(), "alone:"), out.String())
			assert.Equal(t, !c.passes, strings.Contains(out.String(), "FAILED: 1"), out.String())
			assert.NotContains(t, out.String(), "all is well")
			builds := c.name != "it does not build"
			assert.Equal(t, builds, strings.Contains(out.String(), "p TestWell: p_test.go:8: REPEATED: the machine"), out.String())
			if c.left != "" {
				_, summary, _ := strings.Cut(out.String(), "FAILED: 1")
				assert.Contains(t, out.String(), strings.Trim(c.reason, `" +`))
				if !c.passes {
					assert.Contains(t, summary, "p_test.go:", "where")
				}
			}
		})
	}
}

func TestWhatEndsTheWholeProcessIsTold(t *testing.T) {
	t.Setenv("PANIC", "yes")
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module p\n\ngo 1.26\n", "p_test.go": program} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	var out strings.Builder
	g := gate{meter: &meter{best: time.Millisecond}, out: &out, dir: dir}
	assert.False(t, g.run([]string{"-timeout", "1m", "."}))
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
		r := read(m, strings.NewReader(text), io.Discard)
		require.Len(t, r.failed, 1)
		assert.Equal(t, !waits, r.failed[0].stall.long())
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
