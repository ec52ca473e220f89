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

// After everything was tried once, what is tried is what is least sure: what breaks now and then before what
// never does, and the seldom tried before the often tried. A stable table is one in which nothing has changed
// for long.
func TestTheTimeGoesWhereTheVerdictIsLeastSure(t *testing.T) {
	faults := map[string]*task{}
	b := &bench{svc: &service{name: "s"}, run: &run{end: time.Now().Add(time.Hour)}}
	var tasks []*task
	report := &history.Report{}
	for _, f := range []struct {
		id                   string
		tries, broken, first int
	}{{"never", 9, 0, 0}, {"always", 9, 9, 1}, {"now and then", 10, 4, 1}, {"seldom tried", 8, 0, 0}} {
		faults[f.id] = &task{id: f.id, fault: history.Fault{ID: f.id}, tries: f.tries}
		tasks = append(tasks, faults[f.id])
		report.Rows = append(report.Rows, history.Row{Rule: check.Exclusion, Fault: f.id, Cells: []history.Cell{
			{Service: "other", Trials: 20, Broken: 10, First: 20},
			{Service: "s", Trials: f.tries, Broken: f.broken, First: f.first},
		}})
	}
	b.run.seen.Store(report)
	next := func() string {
		best, untried := b.next(tasks)
		assert.Zero(t, untried)
		if best == nil {
			return ""
		}
		return best.id
	}
	assert.Equal(t, "now and then", next())
	faults["now and then"].tries = 100
	assert.Equal(t, "seldom tried", next())
	b.run.plan.Stable = true
	assert.Empty(t, next(), "each verdict is what it was long ago")
	faults["never"].tries = enough - 1
	assert.Equal(t, "never", next())
	faults["never"].tries = 9
	report.Rows[1].Cells[1].First = 9
	assert.Equal(t, "always", next(), "it broke for the first time just now")
	b.run.end = time.Now()
	assert.Empty(t, next())
	faults["never"].tries = 0
	best, untried := b.next(tasks)
	assert.Equal(t, "never", best.id, "everything is tried once, whatever it takes")
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

// What a lock costs is measured of many, and to the end.
func TestTheCost(t *testing.T) {
	t.Parallel()
	lab.Need(t, lab.ToolRedis)
	report := compareOne(t, Plan{URLs: []string{"redis://" + lab.StartRedis(t).Addr()}, TTL: time.Second,
		Only: []string{"cost"}})
	measured := map[string]int{}
	for _, row := range report.Rows {
		measured[row.ID] = row.Cells[0].Trials
	}
	assert.Greater(t, measured["cost/"+history.CurveLock], 3) // 1,600 on a quiet machine, and 7 were seen on a busy one
	assert.Equal(t, 1, measured["cost/"+history.MeasureUncontended])
	assert.Equal(t, 1, measured["cost/"+history.MeasureContended])
	assert.Equal(t, 1, measured["cost/"+history.MeasureRequests])
}

// What ages a service of the lab's own is not told of another's lock on servers of that kind.
func TestOthersAreNotAged(t *testing.T) {
	r := &run{plan: Plan{Openers: testOpeners(), URLs: []string{"redis", "good=redis"}, For: longRun}}
	benches, err := r.services()
	require.NoError(t, err)
	for _, only := range [][]string{nil, {ageing}} {
		for _, b := range benches {
			r.plan.Only, b.svc.untried = only, map[string]string{}
			r.live, r.dir = newLive(nil, benches), t.TempDir()
			tried := len(b.ageingTasks())
			assert.Equal(t, only != nil && b.kind == "redis", tried > 0, "%s, %v", b.kind, only)
			assert.Len(t, b.svc.untried, len(ageingFaults())-tried)
		}
	}
}
