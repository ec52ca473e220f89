package compare

import (
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/compare/internal/check"
	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/lab"
)

// Locks that share a fault are one observation of it, and faults come at any time between two renewals.
func TestACellCountsFaults(t *testing.T) {
	t.Parallel()
	lab.Need(t, lab.ToolRedis)
	const ttl = 600 * time.Millisecond
	dir := filepath.Join(t.TempDir(), "run")
	report := compareOne(t, plan{
		urls: []string{"redis://" + lab.StartRedis(t).Addr()}, ttl: ttl, locks: 3, tries: 6 * time.Second,
		only: []string{"holder-killed"}, dir: dir,
	})
	renewed := map[string]int64{} // by process: when it was last granted or renewed a lock
	after := map[string][]int64{} // by process: how long before it was killed that was
	for e, err := range history.Read(dir) {
		require.NoError(t, err)
		switch e.Kind {
		case history.Granted, history.Renewed:
			renewed[e.Process] = e.At
		case history.FaultBegin:
			after[e.Process] = append(after[e.Process], e.At-renewed[e.Process])
		}
	}
	var phases []int64
	for _, p := range after {
		phases = append(phases, p[0])
	}
	require.GreaterOrEqual(t, len(phases), 3, "faults")
	assert.Equal(t, len(phases), cell(t, report, check.Exclusion, "holder-killed").Trials)
	assert.Greater(t, slices.Max(phases)-slices.Min(phases), int64(ttl/6), "%v", phases)
}

// A lock that was not granted while this machine stood still is not said to be the service's fault alone.
func TestAFailureWhileTheMachineStoodStillSaysSo(t *testing.T) {
	t.Parallel()
	report := compareOne(t, plan{only: []string{restarted.ID}, lab: []labService{{"file", func(b *bench) {
		startFile(b)
		delete(b.untried, restarted.ID)
		b.faults = []serverFault{{Fault: restarted, inject: func(b *bench) string {
			b.run.stalled.Add(int64(2 * time.Second))
			b.Fatalf("a lock that was free was not granted")
			return ""
		}}}
	}}}})
	c := cell(t, report, check.Exclusion, restarted.ID)
	assert.Equal(t, history.Inconclusive, c.Verdict)
	assert.Contains(t, c.Reason,
		"a lock that was free was not granted (this machine stood still for 2s meanwhile)")
}

// starving is a server whose threads wait for a processor.
type starving struct {
	looks atomic.Int64
	each  time.Duration // for so long between two looks
}

func (*starving) Pid() int { return 17 }

func (s *starving) Waits() map[int]time.Duration {
	return map[int]time.Duration{1: time.Duration(s.looks.Add(1)) * s.each, 2: time.Hour}
}

// What is told of a server is how long its worst thread had to wait since the look before, if that is long.
func TestServersThatWaitForAProcessor(t *testing.T) {
	t.Parallel()
	busy, idle := &starving{each: 40 * time.Millisecond}, &starving{each: time.Millisecond}
	told := int64(0)
	stop := watchServers(func(e history.Event) {
		assert.Equal(t, history.Event{Kind: history.Starved, Process: "17", Value: 40e6}, e)
		told++
	}, []*starving{busy, idle})
	require.Eventually(t, func() bool { return busy.looks.Load() > 3 }, time.Minute, time.Millisecond)
	stop()
	assert.Equal(t, busy.looks.Load()-1, told)
}
