package check_test

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/compare/internal/check"
	"github.com/golockers/locker/compare/internal/history"
)

// run is what the histories of these tests are about: a service that declares
// everything, and one fault of each class.
func run() *history.Run {
	r := &history.Run{Services: []history.Service{{Name: "s", Declared: history.Guarantees{
		Backend: "s", Scope: "network", Exclusion: "consensus", Fencing: "unless data is set back", Order: "fifo",
		DeadHolder: "after the TTL", ServerCrashes: 1, SurvivesRestart: true, SurvivesFailover: true,
		SurvivesClockJump: true,
	}}}}
	for _, class := range []history.Class{
		history.Client, history.Stopped, history.Killed, history.Load, history.Server,
		history.Down, history.Restart,
		history.DataLost,
	} {
		r.Faults = append(r.Faults, history.Fault{ID: string(class), Class: class})
	}
	return r
}

// script reads a history of one trial from lines such as
//
//	120 granted a tok=3 until=1120
//
// in milliseconds. The trial's begin, with a TTL of a second, and its end after
// fourteen are added, and for Ask a deadline at 9 s if it has none.
func script(t *testing.T, text string) []history.Event {
	t.Helper()
	const start = 1000
	begin := history.Event{At: 1, Kind: history.TrialBegin, Service: "s", Trial: "t", Value: 1e9}
	var out []history.Event
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		ms, err := strconv.Atoi(fields[0])
		require.NoError(t, err)
		e := history.Event{At: int64(ms)*1e6 + start, Kind: history.Kind(fields[1]), Service: "s",
			Trial: "t", Name: "n"}
		for _, field := range fields[2:] {
			key, value, pair := strings.Cut(field, "=")
			if field == "shared" {
				e.Shared = true
				continue
			}
			if !pair {
				e.Process = field
				continue
			}
			n, err := strconv.Atoi(value)
			switch key {
			case "tok":
				e.Token = uint64(n)
			case "until":
				e.Until = int64(n)*1e6 + start
			case "v":
				e.Value = int64(n)
			case "ms":
				e.Value = int64(n) * 1e6
			case "q":
				e.Seq = uint64(n)
			case "n":
				e.Name, err = value, nil
			case "s":
				e.Service, err = value, nil
			case "f":
				e.Fault, err = value, nil
				begin.Fault = value
			default:
				t.Fatalf("what is %q?", field)
			}
			require.NoError(t, err, field)
		}
		if e.Kind == history.Ask && e.Until == 0 {
			e.Until = 9e9
		}
		if slices.Contains([]history.Kind{history.FaultBegin, history.FaultEnd, history.Evidence,
			history.Stall, history.Starved}, e.Kind) {
			e.Name = ""
		}
		out = append(out, e)
	}
	out = append([]history.Event{begin}, out...)
	return append(out, history.Event{At: 14e9, Kind: history.TrialEnd, Service: "s", Trial: "t"})
}

func all(events []history.Event) iter.Seq2[history.Event, error] {
	return func(yield func(history.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// verdicts are the rules that are broken, and those that held, in a report of one service.
func verdicts(r *history.Report) (broken, held, aside []string) {
	for _, row := range r.Rows {
		switch c := row.Cells[0]; c.Verdict {
		case history.Broken, history.Undeclared:
			broken = append(broken, row.Rule)
		case history.Held:
			held = append(held, row.Rule)
		case history.Inconclusive:
			aside = append(aside, row.Rule)
		}
	}
	slices.Sort(broken)
	slices.Sort(held)
	slices.Sort(aside)
	return broken, held, aside
}

// Each way to break a lock is found by the rule that is meant for it, and by no
// other; the nearest history that is right is not found at all.
func TestEachBreakIsFoundByItsRule(t *testing.T) {
	for _, c := range []struct {
		name, history, broken, held, aside string
		worst                              string
	}{
		{name: "a hand-over", history: `
			0 ask a
			1 granted a tok=1 until=1001
			2 ask b
			300 renewed a until=1300
			400 unlock_begin a
			401 granted b tok=2 until=1401
			402 unlocked a
			500 unlock_begin b
			501 unlocked b`, held: "exclusion false-loss hangs tokens"},
		{name: "two at once", history: `
			0 ask a
			1 granted a tok=1 until=1001
			2 ask b
			900 granted b tok=2 until=1901
			1000 unlock_begin a
			1001 unlocked a`,
			broken: "exclusion", held: "false-loss hangs tokens", worst: "a/0 and b/0 held at once for 100ms"},
		{name: "two share it, and a writer follows", history: `
			0 ask a shared
			1 granted a tok=1 until=1001
			2 ask b shared
			3 granted b tok=1 until=1901
			4 ask c
			10 acted a q=1 tok=1
			11 landed a q=1 tok=1
			12 acted b q=1 tok=1
			13 landed b q=1 tok=1
			14 acted a q=2 tok=1
			15 landed a q=2 tok=1
			400 unlock_begin a
			401 unlocked a
			500 unlock_begin b
			501 unlocked b
			502 granted c tok=2 until=1501
			503 acted c q=1 tok=2
			504 landed c q=1 tok=2
			600 unlock_begin c
			601 unlocked c`, held: "exclusion false-loss guarded hangs stale tokens"},
		{name: "a reader beside a writer", history: `
			0 ask a shared
			1 granted a tok=1 until=1001
			2 ask b
			900 granted b tok=2 until=1901
			1000 unlock_begin a
			1001 unlocked a`,
			broken: "exclusion", held: "false-loss hangs tokens", worst: "a/0 and b/0 held at once for 100ms"},
		{name: "a reader with the token of the writer before", history: `
			0 ask a
			1 granted a tok=1 until=1001
			100 unlock_begin a
			101 unlocked a
			200 ask b shared
			201 granted b tok=1 until=1901
			300 unlock_begin b
			301 unlocked b`, broken: "tokens", held: "exclusion false-loss hangs"},
		{name: "an act of a reader after one of the writer that followed", history: `
			0 ask a shared
			1 granted a tok=1 until=1001
			2 ask b shared
			3 granted b tok=1 until=1001
			4 ask c
			10 acted b q=1 tok=1
			1002 granted c tok=2 until=5001
			1003 acted c q=1 tok=2
			1004 landed c q=1 tok=2
			1010 landed b q=1 tok=1
			1011 told_lost a
			1011 told_lost b`, broken: "stale", held: "exclusion false-loss hangs tokens told"},
		{name: "two at once, neither has a deadline", history: `
			0 ask a
			1 granted a tok=1
			2 ask b
			900 granted b tok=2
			950 unlock_begin b
			951 unlocked b`, broken: "exclusion", held: "false-loss hangs tokens", worst: "held at once for 50ms"},
		{name: "one after the other's end", history: `
			0 ask a
			1 granted a tok=1 until=1001
			2 ask b
			1001 told_lost a
			1001 granted b tok=2 until=2001`, held: "exclusion false-loss hangs tokens told"},
		{name: "a renewal makes it longer", history: `
			0 ask a
			1 granted a tok=1 until=1001
			500 renewed a until=1500
			501 ask b
			1200 granted b tok=2 until=1901
			1250 unlock_begin b
			1251 unlocked b`, broken: "exclusion told", held: "false-loss hangs tokens", worst: "for 50ms"},
		{name: "a lease that goes on after another had held", history: `
			0 ask a
			1 granted a tok=1 until=1001
			501 ask b
			1100 granted b tok=2 until=2101
			1150 unlock_begin b
			1151 unlocked b
			1160 renewed a until=3160
			1161 unlock_begin a
			1162 unlocked a`,
			broken: "exclusion", held: "false-loss hangs tokens", worst: "went on after it had run out"},
		{name: "a grant that is over when it comes", history: `
			0 ask a
			1 ask b
			2 granted b tok=2 until=5000
			1500 granted a tok=1 until=1001
			3000 unlock_begin b
			3001 unlocked b`, held: "exclusion false-loss hangs"},
		{name: "two names are two locks", history: `
			0 ask a
			1 granted a tok=1 until=5001
			2 ask b n=m
			3 granted b tok=1 n=m until=5001
			4 unlock_begin a
			5 unlocked a`, held: "false-loss hangs"},
		{name: "told too late", history: `
			0 fault_begin f=client
			0 ask a
			1 granted a tok=1 until=1001
			2 evidence
			2 ask b
			1100 granted b tok=2 until=9001
			1600 told_lost a
			1700 fault_end`,
			broken: "told", held: "exclusion hangs tokens",
			worst: "a/0 was told 500ms after the next had got in"},
		{name: "never told", history: `
			0 fault_begin f=client
			0 ask a
			1 granted a tok=1 until=1001
			2 evidence
			2 ask b
			1100 granted b tok=2 until=20000
			1700 fault_end`,
			broken: "told", held: "exclusion hangs tokens", worst: "a/0 had not been told 12.9s after"},
		{name: "told late, as one who was stopped", history: `
			0 ask a
			1 granted a tok=1 until=1001
			2 ask b
			3 fault_begin a f=stopped
			4 evidence
			1100 granted b tok=2 until=9001
			1600 fault_end a
			1600 told_lost a`, held: "exclusion hangs left tokens"},
		{name: "told late, on a machine that stalled", history: `
			0 fault_begin f=client
			0 ask a
			1 granted a tok=1 until=1001
			2 evidence
			2 ask b
			1100 granted b tok=2 until=9001
			1600 told_lost a
			1620 stall ms=500
			1700 fault_end`, held: "exclusion hangs tokens", aside: "told"},
		{name: "told late, on a machine where another stalled", history: `
			0 fault_begin f=client
			0 ask a
			1 granted a tok=1 until=1001
			2 evidence
			2 ask b
			1100 granted b tok=2 until=9001
			1230 stall x ms=80
			1231 stall y ms=90
			1280 told_lost a
			1700 fault_end`, held: "exclusion hangs tokens", aside: "told"},
		{name: "told in time", history: `
			0 fault_begin f=client
			0 ask a
			1 granted a tok=1 until=1001
			2 evidence
			2 ask b
			1001 told_lost a
			1100 granted b tok=2 until=9001
			1700 fault_end`, held: "exclusion hangs tokens told"},
		{name: "stale acts", history: `
			0 ask a
			1 granted a tok=1 until=1001
			2 ask b
			3 acted a q=1 tok=1
			4 landed a q=1 tok=1
			5 acted a q=2 tok=1
			6 fault_begin a f=stopped
			7 evidence
			1100 granted b tok=2 until=2101
			1101 acted b q=1 tok=2
			1102 landed b q=1 tok=2
			1600 fault_end a
			1601 landed a q=2 tok=1
			1602 told_lost a`, broken: "stale", held: "exclusion guarded hangs left tokens"},
		{name: "stale acts that a token does not stop", history: `
			0 ask a
			1 granted a tok=5 until=1001
			2 ask b
			5 acted a q=2 tok=5
			6 fault_begin a f=stopped
			7 evidence
			1100 granted b tok=5 until=2101
			1101 acted b q=1 tok=5
			1102 landed b q=1 tok=5
			1600 fault_end a
			1601 landed a q=2 tok=5
			1602 told_lost a`, broken: "guarded stale tokens", held: "exclusion hangs left"},
		{name: "a late act that is not stale", history: `
			0 ask a
			1 granted a tok=1 until=1001
			2 acted a q=1 tok=1
			3 unlock_begin a
			4 unlocked a
			5 ask b
			6 granted b tok=2 until=1006
			7 landed a q=1 tok=1
			8 acted b q=1 tok=2
			9 landed b q=1 tok=2`, held: "exclusion false-loss guarded hangs stale tokens"},
		{name: "a token twice", history: `
			0 ask a
			1 granted a tok=7 until=1001
			2 unlock_begin a
			3 unlocked a
			4 ask b
			5 granted b tok=7 until=1005`,
			broken: "tokens", held: "exclusion false-loss hangs", worst: "b/0 got token 7 after 7"},
		{name: "a token that falls, of one who waited", history: `
			0 ask a
			1 ask b
			2 granted a tok=7 until=1001
			3 unlock_begin a
			4 granted b tok=6 until=1005
			5 unlocked a`, broken: "tokens", held: "exclusion false-loss hangs"},
		{name: "no token after one", history: `
			0 ask a
			2 granted a tok=7 until=1001
			3 unlock_begin a
			3 unlocked a
			4 ask a
			4 granted a until=1005`, broken: "tokens", held: "false-loss hangs"},
		{name: "free in time after a death", history: `
			0 ask a
			1 granted a tok=1 until=1001
			2 ask b
			100 fault_begin a f=killed
			110 evidence
			1300 granted b tok=2 until=2300`, held: "dead exclusion hangs tokens", worst: "at most 1.2s"},
		{name: "granted between the announcement of a kill and the kill", history: `
			0 ask a
			1 ask b
			100 fault_begin a f=killed
			101 granted a tok=1 until=1101
			110 evidence
			111 granted b tok=2 until=1300
			112 unlock_begin b
			113 unlocked b`, held: "exclusion hangs"},
		{name: "free too late after a death", history: `
			0 ask a
			1 granted a tok=1 until=1001
			2 ask b
			100 fault_begin a f=killed
			110 evidence
			4300 granted b tok=2 until=5300`,
			broken: "dead", held: "exclusion hangs tokens", worst: "free 4.2s after its holder a/0 had died"},
		{name: "never free after a death", history: `
			0 ask a
			1 granted a tok=1 until=1001
			2 ask b until=8000
			100 fault_begin a f=killed
			110 evidence
			8000 gave_up b`, broken: "dead", held: "exclusion hangs", worst: "still not free 7.9s after"},
		{name: "a ghost", history: `
			0 ask a
			1 granted a tok=1 until=1001
			2 fault_begin b f=client
			2 ask b until=1000
			3 evidence
			4 unlock_begin a
			5 unlocked a
			1000 gave_up b
			1100 fault_end b
			1200 ask c until=8000
			8000 gave_up c`, broken: "left", held: "exclusion hangs", worst: "nobody got it for 6.8s"},
		{name: "a ghost that goes", history: `
			0 ask a
			1 granted a tok=1 until=1001
			2 fault_begin b f=client
			2 ask b until=1000
			3 evidence
			4 unlock_begin a
			5 unlocked a
			1000 gave_up b
			1100 fault_end b
			1200 ask c until=8000
			2000 granted c tok=2 until=3000`, held: "exclusion hangs left tokens", worst: "at most 800ms"},
		{name: "served with a server down", history: `
			0 ask a
			0 granted a tok=1 until=1001
			1 fault_begin f=down v=1
			2 evidence
			500 ask b n=m
			600 granted b tok=1 n=m until=1500
			8000 fault_end`, held: "false-loss hangs served"},
		{name: "not served with a server down", history: `
			0 ask a
			0 granted a tok=1 until=1001
			1 fault_begin f=down v=1
			2 evidence
			500 renewed a until=1500
			1001 told_lost a
			13500 fault_end`, broken: "false-loss served", held: "hangs"},
		{name: "not served for a moment with a server down", history: `
			0 ask a
			0 granted a tok=1 until=1001
			1 fault_begin f=down v=1
			2 evidence
			4000 fault_end`, held: "false-loss hangs"},
		{name: "not served with more servers down than it declares", history: `
			0 ask a
			0 granted a tok=1 until=1001
			1 fault_begin f=down v=2
			2 evidence
			4000 fault_end`, broken: "served", held: "false-loss hangs"},
		{name: "lost for no reason", history: `
			0 ask a
			1 granted a tok=1 until=1001
			400 renewed a until=1400
			900 told_lost a`, broken: "false-loss", held: "hangs"},
		{name: "a name that is blocked after a restart", history: `
			0 ask a
			1 granted a tok=1 until=1001
			2 ask b
			3 fault_begin f=restart
			4 evidence
			500 fault_end
			600 unlock_begin a
			601 unlocked a
			602 ask c n=other
			700 granted c n=other tok=2 until=1700
			701 unlock_begin c n=other
			702 unlocked c n=other
			9000 gave_up b`, broken: "left", held: "exclusion false-loss hangs"},
		{name: "a name that is free soon after a restart", history: `
			0 ask a
			1 granted a tok=1 until=1001
			2 ask b
			3 fault_begin f=restart
			4 evidence
			500 fault_end
			600 unlock_begin a
			601 unlocked a
			602 ask c n=other
			5700 granted c n=other tok=2 until=6700
			7000 granted b tok=3 until=8000`, held: "exclusion false-loss hangs left tokens"},
		{name: "a service that has not come back after a restart", history: `
			0 ask a
			1 granted a tok=1 until=1001
			2 ask b
			3 fault_begin f=restart
			4 evidence
			500 fault_end
			600 unlock_begin a
			601 unlocked a
			9000 gave_up b`, held: "exclusion false-loss hangs"},
		{name: "lost as the machine stalled", history: `
			0 ask a
			1 granted a tok=1 until=1001
			400 renewed a until=1400
			1100 stall a ms=700
			1100 told_lost a`, held: "hangs", aside: "false-loss"},
		{name: "lost as a server had no processor", history: `
			0 ask a
			1 granted a tok=1 until=1001
			400 renewed a until=1400
			500 starved 17 ms=90
			800 starved 18 ms=120
			810 starved 17 ms=120
			900 starved 17 ms=45
			900 told_lost a`, held: "hangs", aside: "false-loss"},
		{name: "lost, and a server had no processor for a moment", history: `
			0 ask a
			1 granted a tok=1 until=1001
			400 renewed a until=1400
			800 starved 17 ms=120
			810 starved 18 ms=120
			900 told_lost a`, broken: "false-loss", held: "hangs"},
		{name: "lost, and a server of another service had no processor", history: `
			0 ask a
			1 granted a tok=1 until=1001
			400 renewed a until=1400
			900 starved 17 ms=900 s=other
			900 told_lost a`, broken: "false-loss", held: "hangs"},
		{name: "told late, and a server had no processor", history: `
			0 fault_begin f=client
			0 ask a
			1 granted a tok=1 until=1001
			2 evidence
			2 ask b
			1100 granted b tok=2 until=9001
			1600 told_lost a
			1620 starved 17 ms=1000
			1700 fault_end`, broken: "told", held: "exclusion hangs tokens"},
		{name: "a lease that was not to be renewed", history: `
			0 ask a
			1 granted a tok=1 until=1001
			1001 told_lost a`, held: "false-loss hangs"},
		{name: "a waiter overtaken", history: `
			0 ask a
			1 granted a tok=1 until=9001
			2 ask b
			500 ask c
			900 unlock_begin a
			901 granted c tok=2 until=9101
			902 unlocked a
			903 unlock_begin c
			904 granted b tok=3 until=9100
			905 unlocked c`,
			broken: "order", held: "exclusion false-loss hangs tokens",
			worst: "c/0 got in before b/0, which had begun to wait 498ms earlier"},
		{name: "a waiter overtaken, where everything is slow", history: `
			0 ask a
			190 granted a tok=1 until=9001
			202 ask b
			700 ask c
			900 unlock_begin a
			901 granted c tok=2 until=9101
			1101 unlocked a
			1103 unlock_begin c
			1104 granted b tok=3 until=9100
			1105 unlocked c`, held: "exclusion false-loss hangs tokens", aside: "order"},
		{name: "a waiter that lost the service, and its place", history: `
			0 ask a
			1 granted a tok=1 until=9001
			2 ask b
			500 ask c
			900 unlock_begin a
			901 granted c tok=2 until=9101
			902 unlocked a
			903 gave_up b
			904 unlock_begin c
			905 unlocked c`, held: "exclusion false-loss hangs order tokens"},
		{name: "a waiter that nobody let in", history: `
			0 ask a
			1 granted a tok=1 until=9001
			2 ask b until=1500
			500 ask c
			900 unlock_begin a
			901 granted c tok=2 until=9101
			902 unlocked a
			904 unlock_begin c
			905 unlocked c
			1501 gave_up b`, broken: "order", held: "exclusion false-loss hangs left tokens"},
		{name: "waiters in turn", history: `
			0 ask a
			1 granted a tok=1 until=9001
			2 ask b
			500 ask c
			900 unlock_begin a
			901 granted b tok=2 until=9101
			902 unlocked a
			903 unlock_begin b
			904 granted c tok=3 until=9100
			905 unlocked b`, held: "exclusion false-loss hangs order tokens"},
		{name: "a call that comes back late", history: `
			0 ask a until=1000
			3000 gave_up a`, broken: "hangs", worst: "Lock of a/0 returned 2s after its context had ended"},
		{name: "a call that never comes back", history: `
			0 ask a
			1 granted a tok=1 until=5000
			2 unlock_begin a until=1000`, broken: "hangs", held: "false-loss", worst: "Unlock of a/0 never returned"},
		{name: "a call of one who is stopped", history: `
			0 ask a until=1000
			1 fault_begin a f=stopped
			2 evidence
			5000 fault_end a
			5001 gave_up a`, held: "hangs"},
		{name: "a fault that nobody saw", history: `
			0 fault_begin f=client
			0 ask a until=1000
			3000 gave_up a`, aside: "hangs"},
		{name: "two at once, with a fault that nobody saw", history: `
			0 fault_begin f=client
			0 ask a
			1 granted a tok=1 until=1001
			2 ask b
			900 granted b tok=2 until=1901`, broken: "exclusion", aside: "hangs tokens told"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := check.Check(run(), all(script(t, c.history)))
			require.NoError(t, err)
			broken, held, aside := verdicts(r)
			assert.Equal(t, c.broken, strings.Join(broken, " "), "broken")
			assert.Equal(t, c.held, strings.Join(held, " "), "held")
			assert.Equal(t, c.aside, strings.Join(aside, " "), "set aside")
			worst := ""
			for _, row := range r.Rows {
				cell := row.Cells[0]
				if len(broken) == 0 || cell.Verdict == history.Broken {
					worst += cell.Worst + "\n"
				}
				if cell.Verdict == history.Broken {
					require.NotNil(t, cell.Witness, row.ID)
					assert.NotEmpty(t, cell.Witness.Events, row.ID)
					assert.True(t, slices.IsSortedFunc(cell.Witness.Events,
						func(a, b history.Event) int { return int(a.At - b.At) }), row.ID)
				}
			}
			assert.Contains(t, worst, c.worst)
		})
	}
}

// verdict is what is said of something broken: what is declared decides what is a defect.
var verdict = map[bool]history.Verdict{true: "BROKEN", false: "broken"}

func TestWhatIsNotDeclaredIsNoDefect(t *testing.T) {
	two := `
		0 fault_begin f=%s
		0 ask a
		1 granted a tok=1 until=1001
		1 evidence
		2 ask b
		900 granted b tok=2 until=1901
		901 unlock_begin b
		902 unlocked b
		903 ask b
		904 granted b tok=2 until=1901`
	lags := run()
	lags.Services[0].Declared.SurvivesFailover = false
	lags.Faults = append(lags.Faults, history.Fault{ID: "failover", Class: history.Failover})
	for fault, declared := range map[string]bool{"client": true, "restart": true, "failover": false,
		"data_lost": false} {
		r, err := check.Check(lags, all(script(t, fmt.Sprintf(two, fault))))
		require.NoError(t, err)
		i := slices.IndexFunc(r.Rows, func(row history.Row) bool { return row.ID == "exclusion/"+fault })
		require.GreaterOrEqual(t, i, 0)
		assert.Equal(t, verdict[declared], r.Rows[i].Cells[0].Verdict, fault)
		i = slices.IndexFunc(r.Rows, func(row history.Row) bool { return row.ID == "tokens/"+fault })
		assert.Equal(t, verdict[declared], r.Rows[i].Cells[0].Verdict, fault)
		if declared {
			assert.Positive(t, r.Broken)
			assert.True(t, r.Rows[0].Cells[0].Bad(), "the worst is first")
			assert.Regexp(t, `^\d of \d+ declared guarantees BROKEN: s: two at once under `+fault+
				`; s: told in time under `+fault+`; s: tokens rise under `+fault+`$`, r.Headline)
		} else {
			assert.Regexp(t,
				`^s: two at once under `+fault+`\. All \d+ declared guarantees that were tried held$`,
				r.Headline)
		}
	}
}

// Where servers fail a lease that is lost is nobody's promise, and a row of its own, though its holder was told
// in time.
func TestALeaseThatIsLostWhileServersFail(t *testing.T) {
	for _, fault := range []string{"server", "down", "restart", "data_lost"} {
		r, err := check.Check(run(), all(script(t, fmt.Sprintf(`
			0 ask a
			1 granted a tok=1 until=1001
			2 fault_begin f=%s
			3 evidence
			400 renewed a until=1400
			500 fault_end
			1400 told_lost a`, fault))))
		require.NoError(t, err)
		i := slices.IndexFunc(r.Rows, func(row history.Row) bool { return row.ID == "false-loss/"+fault })
		require.GreaterOrEqual(t, i, 0)
		assert.Equal(t, history.Undeclared, r.Rows[i].Cells[0].Verdict, fault)
	}
	peer := run()
	peer.Services[0].Declared.Exclusion = "none"
	r, err := check.Check(peer, all(script(t,
		"0 ask a\n1 granted a until=1001\n400 renewed a until=1400\n900 told_lost a")))
	require.NoError(t, err)
	assert.Zero(t, r.Broken, "of another's lock nothing is declared")
}

// What a cell counts: trials, those broken, and what is known if none was.
func TestTrialsAreCounted(t *testing.T) {
	good := script(t, "0 ask a\n1 granted a tok=1 until=1001\n2 ask b\n3 unlock_begin a\n4 unlocked a\n"+
		"5 granted b tok=2 until=1100")
	bad := script(t, "0 ask a\n1 granted a tok=1 until=1001\n2 ask b\n5 granted b tok=2 until=1100")
	var events []history.Event
	for i := range 60 {
		one := good
		if i == 7 {
			one = bad
		}
		for _, e := range one {
			e.At += int64(i) * 20e9
			if e.Until != 0 {
				e.Until += int64(i) * 20e9
			}
			e.Trial = fmt.Sprint("t", i)
			events = append(events, e)
		}
	}
	r, err := check.Check(run(), all(events))
	require.NoError(t, err)
	assert.Equal(t, 60, r.Trials)
	cells := make(map[string]history.Cell)
	for _, row := range r.Rows {
		cells[row.ID] = row.Cells[0]
	}
	x := cells[check.Exclusion]
	assert.Equal(t, []any{60, 1, 8, "t7", history.Broken},
		[]any{x.Trials, x.Broken, x.First, x.Witness.Trial, x.Verdict})
	assert.Equal(t, "t7", x.Outcomes[0].Trial)
	k := cells[check.Tokens]
	assert.Equal(t, []any{60, 0, 0.05, history.Held}, []any{k.Trials, k.Broken, k.Bound, k.Verdict})
	assert.Equal(t, history.NotTried, cells[check.Exclusion+"/client"].Verdict)
	assert.NotEmpty(t, cells[check.Exclusion+"/client"].Reason)
}

// A history that cannot be read to its end is judged as far as it goes.
func TestAHistoryThatEndsEarly(t *testing.T) {
	events := script(t, "0 ask a\n1 granted a tok=1 until=1001\n2 ask b\n5 granted b tok=2 until=1100")
	r, err := check.Check(run(), func(yield func(history.Event, error) bool) {
		for _, e := range events[:5] {
			yield(e, nil)
		}
		yield(history.Event{}, assert.AnError)
	})
	require.ErrorIs(t, err, assert.AnError)
	broken, _, _ := verdicts(r)
	assert.Equal(t, []string{check.Exclusion}, broken)
}
