package compare

import (
	"path/filepath"
	"slices"
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
	report := compareOne(t, Plan{
		URLs: []string{"redis://" + lab.StartRedis(t).Addr()}, TTL: ttl, Names: 3, For: 6 * time.Second,
		Only: []string{holderKilled.ID}, Dir: dir,
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
	assert.Equal(t, len(phases), cell(t, report, check.Exclusion, holderKilled.ID).Trials)
	assert.Greater(t, slices.Max(phases)-slices.Min(phases), int64(ttl/6), "%v", phases)
}

// A lock that was not granted while this machine stood still is not said to be the service's fault alone.
func TestAFailureWhileTheMachineStoodStillSaysSo(t *testing.T) {
	t.Parallel()
	report := compareOne(t, Plan{Only: []string{restarted.ID},
		lab: []labService{{"file", func(b *bench) service {
			s := startFile(b)
			delete(s.untried, restarted.ID)
			s.faults = []serverFault{{fault: restarted, script: func(r *round) {
				r.take(r.a, nil)
				r.queue(r.b)
				r.run.stalled.Add(int64(2 * time.Second))
				r.Fatalf("a lock that was free was not granted")
			}}}
			return s
		}}}})
	c := cell(t, report, check.Exclusion, restarted.ID)
	assert.Equal(t, history.Inconclusive, c.Verdict)
	assert.Contains(t, c.Reason,
		"a lock that was free was not granted (this machine stood still for 2s meanwhile)")
}

// Everything is tried once, whatever it takes, and then again and again while there is time.
func TestWhatIsTriedNext(t *testing.T) {
	b := &bench{run: &run{end: time.Now().Add(time.Hour)}}
	tasks := []*task{{id: "a", tries: 1}, {id: "b"}, {id: "c", tries: 2}}
	next := func() (id string, untried int) {
		best, untried := b.next(tasks)
		if best != nil {
			id = best.id
			best.tries++
		}
		return id, untried
	}
	for _, want := range []struct {
		id      string
		untried int
	}{{"b", 1}, {"a", 0}, {"b", 0}, {"a", 0}} {
		id, untried := next()
		assert.Equal(t, want.id, id)
		assert.Equal(t, want.untried, untried)
	}
	b.run.end = time.Now()
	id, _ := next()
	assert.Empty(t, id)
	tasks[2].tries = 0
	id, untried := next()
	assert.Equal(t, "c", id)
	assert.Equal(t, 1, untried)
}

// How long it still takes is told by what was seen, not by a guess.
func TestTheTimeThatIsLeft(t *testing.T) {
	l := newLive(nil, []*bench{{svc: &service{name: "slow"}}, {svc: &service{name: "quick"}}})
	l.left("slow", 3)
	l.left("quick", 9)
	assert.Equal(t, "nobody knows yet how long still", l.remaining())
	l.columns["quick"].rounds, l.columns["quick"].took, l.columns["quick"].since = 2, 4*time.Second, time.Now()
	assert.Equal(t, "about 18s still", l.remaining())
	l.columns["slow"].rounds, l.columns["slow"].took, l.columns["slow"].since = 1, time.Minute,
		time.Now().Add(-20*time.Second)
	assert.Equal(t, "about 2m40s still", l.remaining())
	l.until(time.Now().Add(5 * time.Minute))
	assert.Equal(t, "about 5m0s still", l.remaining())
	l.left("slow", 0)
	l.left("quick", 0)
	l.until(time.Now())
	assert.Equal(t, "what is under way is the last", l.remaining())
}
