package check_test

import (
	"fmt"
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
		history.Client, history.Stopped, history.Killed, history.Server,
		history.Down, history.Restart,
		history.DataLost,
	} {
		r.Faults = append(r.Faults, history.Fault{ID: string(class), Class: class})
	}
	return r
}

// script reads a history of one trial, of events in milliseconds such as
//
//	120 granted a tok=3 until=1120; 200 told_lost a
//
// "holds" is an ask and what is granted a millisecond later, "unlocks" is unlock_begin. The trial's begin,
// with a TTL of a second, and its end after fourteen are added.
func script(t *testing.T, text string) []history.Event {
	t.Helper()
	ms := func(n int64) int64 { return n*1e6 + 1000 }
	begin := history.Event{At: 1, Kind: history.TrialBegin, Service: "s", Trial: "t", Value: 1e9}
	var out []history.Event
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == '\n' }) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		at, err := strconv.ParseInt(fields[0], 10, 64)
		require.NoError(t, err, line)
		e := history.Event{At: ms(at), Kind: history.Kind(fields[1]), Service: "s", Trial: "t", Name: "n"}
		for _, field := range fields[2:] {
			key, value, _ := strings.Cut(field, "=")
			n, _ := strconv.ParseInt(value, 10, 64)
			switch key {
			case "tok":
				e.Token = uint64(n)
			case "until":
				e.Until = ms(n)
			case "v":
				e.Value = n
			case "ms":
				e.Value = n * 1e6
			case "n":
				e.Name = value
			case "d":
				e.Detail = value
			case "f":
				e.Fault, begin.Fault = value, value
			default:
				require.Len(t, key, len(field), "%s in %s", field, line)
				e.Process = key
			}
		}
		second := e
		second.At += 1e6
		switch e.Kind {
		case "holds":
			e.Kind, e.Token, e.Until, second.Kind = history.Ask, 0, 0, history.Granted
			out = append(out, e, second)
			continue
		case "unlocks":
			e.Kind = history.UnlockBegin
		case history.FaultBegin, history.FaultEnd, history.Evidence, history.Stall, history.Slow:
			e.Name = ""
		}
		out = append(out, e)
	}
	out = append([]history.Event{begin}, out...)
	return append(out, history.Event{At: 14e9, Kind: history.TrialEnd, Service: "s", Trial: "t"})
}

// cell is that of the only service in a row.
func cell(t *testing.T, r *history.Report, row string) history.Cell {
	t.Helper()
	i := slices.IndexFunc(r.Rows, func(o history.Row) bool { return o.ID == row })
	require.GreaterOrEqual(t, i, 0, row)
	return r.Rows[i].Cells[0]
}

// verdicts are the rules that are broken, those that held, and those of which nothing is said, in a report
// of one service.
func verdicts(r *history.Report) (broken, held, aside string) {
	rules := map[history.Verdict][]string{}
	for _, row := range r.Rows {
		v := row.Cells[0].Verdict
		rules[v] = append(rules[v], row.Rule)
	}
	said := func(of ...string) string { slices.Sort(of); return strings.Join(of, " ") }
	return said(append(rules[history.Broken], rules[history.Undeclared]...)...), said(rules[history.Held]...),
		said(rules[history.Inconclusive]...)
}

// Each way to break a lock is found by the rule that is meant for it, and by no
// other; the nearest history that is right is not found at all.
func TestEachBreakIsFoundByItsRule(t *testing.T) {
	for _, c := range []struct {
		name, history, broken, held, aside string
		worst                              string
	}{
		{name: "a hand-over", held: "exclusion fencing kept",
			history: `0 holds a tok=1 until=1001; 2 ask b; 300 renewed a until=1300
				400 unlock_begin a; 401 granted b tok=2 until=1401; 500 unlocks b`},
		{name: "two at once", broken: "exclusion", held: "fencing kept",
			worst: "a/0 and b/0 held at once for 100ms",
			history: `0 holds a tok=1 until=1001; 2 ask b; 900 granted b tok=2 until=1901
				1000 unlocks a`},
		{name: "two at once, neither has a deadline", broken: "exclusion", held: "fencing kept",
			worst:   "held at once for 50ms",
			history: `0 holds a tok=1; 2 ask b; 900 granted b tok=2; 950 unlocks b`},
		{name: "one after the other's end", held: "exclusion fencing told",
			history: `0 fault_begin f=client; 0 holds a tok=1 until=1001; 2 evidence; 2 ask b
				1001 told_lost a; 1001 granted b tok=2 until=2001`},
		{name: "a renewal makes it longer", broken: "exclusion told", held: "fencing kept",
			worst: "for 50ms",
			history: `0 holds a tok=1 until=1001; 500 renewed a until=1500; 501 ask b
				1200 granted b tok=2 until=1901; 1250 unlocks b`},
		{name: "a lease that goes on after another had held", broken: "exclusion", held: "fencing kept",
			worst: "for 50ms",
			history: `0 holds a tok=1 until=1001; 501 ask b; 1100 granted b tok=2 until=2101
				1150 unlocks b; 1160 renewed a until=3160; 1161 unlocks a`},
		{name: "a grant that is over when it comes", held: "exclusion fencing kept",
			history: `0 ask a; 1 holds b tok=2 until=5000; 1500 granted a tok=1 until=1001
				3000 unlocks b`},
		{name: "two names are two locks", held: "kept",
			history: `0 holds a tok=1 until=5001; 2 holds b tok=1 n=m until=5001; 4 unlocks a`},
		{name: "told too late", broken: "told", held: "exclusion fencing",
			worst: "a/0 learned of its loss 500ms after the next holder got in",
			history: `0 fault_begin f=client; 0 holds a tok=1 until=1001; 2 evidence; 2 ask b
				1100 granted b tok=2 until=9001; 1600 told_lost a; 1700 fault_end`},
		{name: "never told", broken: "told", held: "exclusion fencing",
			worst: "a/0 had not learned of its loss 12.9s after",
			history: `0 fault_begin f=client; 0 holds a tok=1 until=1001; 2 evidence; 2 ask b
				1100 granted b tok=2 until=20000; 1700 fault_end`},
		{name: "it unlocks what it does not know to be lost", broken: "told", held: "exclusion fencing",
			worst: "a/0 still did not know 500ms after the next holder got in",
			history: `0 fault_begin f=client; 0 holds a tok=1 until=1001; 2 evidence; 2 ask b
				1100 granted b tok=2 until=9001; 1600 unlocks a; 1700 fault_end`},
		{name: "a renewal that comes after all is over", held: "exclusion fencing kept",
			history: `0 holds a tok=1 until=1001; 2 ask b; 3 unlocks a; 4 granted b tok=2 until=1004
				5 renewed a until=1005; 6 unlocks b`},
		{name: "it asks again, and forgets what it had", held: "exclusion fencing kept",
			history: `0 holds a tok=1 until=1001; 2 ask b; 3 ask a; 4 granted b tok=2 until=1004; 6 unlocks b`},
		{name: "told late, as one who was stopped", held: "exclusion fencing freed",
			history: `0 holds a tok=1 until=1001; 2 ask b; 3 fault_begin a f=stopped; 4 evidence
				1100 granted b tok=2 until=9001; 1600 fault_end a; 1600 told_lost a`},
		{name: "told late, on a machine that stalled", held: "exclusion fencing", aside: "told",
			history: `0 fault_begin f=client; 0 holds a tok=1 until=1001; 2 evidence; 2 ask b
				1100 granted b tok=2 until=9001; 1600 told_lost a; 1620 stall ms=500; 1700 fault_end`},
		{name: "told late, on a machine where another stalled", held: "exclusion fencing", aside: "told",
			history: `0 fault_begin f=client; 0 holds a tok=1 until=1001; 2 evidence; 2 ask b
				1100 granted b tok=2 until=9001; 1230 stall x ms=80; 1231 stall y ms=90
				1280 told_lost a; 1700 fault_end`},
		{name: "told in time", held: "exclusion fencing told",
			history: `0 fault_begin f=client; 0 holds a tok=1 until=1001; 2 evidence; 2 ask b
				1001 told_lost a; 1100 granted b tok=2 until=9001; 1700 fault_end`},
		{name: "a token twice", broken: "fencing", held: "exclusion kept",
			worst:   "b/0 got token 7 after token 7",
			history: `0 holds a tok=7 until=1001; 2 unlocks a; 4 holds b tok=7 until=1005`},
		{name: "a token that falls, of one who waited", broken: "fencing", held: "exclusion kept",
			history: `0 ask a; 1 ask b; 2 granted a tok=7 until=1001; 3 unlock_begin a
				4 granted b tok=6 until=1005`},
		{name: "a token that falls after one of a lease that was over", broken: "fencing",
			held:    "exclusion kept",
			history: `0 ask a; 1500 granted a tok=7 until=1001; 1600 holds b tok=6 until=2600; 1700 unlocks b`},
		{name: "no token after one", broken: "fencing", held: "kept",
			history: `0 ask a; 2 granted a tok=7 until=1001; 3 unlock_begin a; 4 ask a
				4 granted a until=1005`},
		{name: "free in time after a death", held: "exclusion fencing freed", worst: "at most 1.2s",
			history: `0 holds a tok=1 until=1001; 2 ask b; 100 fault_begin a f=killed; 110 evidence
				1300 granted b tok=2 until=2300`},
		{name: "granted between the announcement of a kill and the kill", held: "exclusion",
			history: `0 ask a; 1 ask b; 100 fault_begin a f=killed; 101 granted a tok=1 until=1101
				110 evidence; 111 granted b tok=2 until=1300; 112 unlocks b`},
		{name: "free too late after a death", broken: "freed", held: "exclusion fencing",
			worst: "nobody got it for 4.2s",
			history: `0 holds a tok=1 until=1001; 2 ask b; 100 fault_begin a f=killed; 110 evidence
				4300 granted b tok=2 until=5300`},
		{name: "never free after a death", broken: "freed", held: "exclusion",
			worst: "nobody got it for 7.9s",
			history: `0 holds a tok=1 until=1001; 2 ask b; 100 fault_begin a f=killed
				110 evidence; 8000 gave_up b`},
		{name: "free when the one who waited has given up", broken: "freed", held: "exclusion fencing",
			worst: "nobody got it for 7.9s",
			history: `0 holds a tok=1 until=1001; 2 ask b; 100 fault_begin a f=killed; 110 evidence
				8000 gave_up b; 8010 ask c; 8100 granted c tok=2 until=9100; 9000 unlocks c`},
		{name: "one who comes later gets it, and one waits in vain", broken: "freed", held: "exclusion fencing",
			worst: "nobody got it for 7.9s",
			history: `0 holds a tok=1 until=1001; 2 ask b; 100 fault_begin a f=killed; 110 evidence
				8000 ask c v=1; 8001 granted c tok=2 until=9001; 8100 unlocks c
				8101 granted b tok=3 until=9101; 8200 unlocks b`},
		{name: "somebody waits to the end", broken: "freed", held: "exclusion", worst: "nobody got it for 13.9s",
			history: `0 holds a tok=1 until=1001; 2 ask b; 100 fault_begin a f=killed; 110 evidence`},
		{name: "left behind without a fault", broken: "freed", held: "exclusion kept",
			worst:   "nobody got it for 4s",
			history: `0 holds a tok=1 until=1001; 2 ask b; 3 gave_up b; 4 unlocks a; 5 ask b; 4002 gave_up b`},
		{name: "a ghost", broken: "freed", held: "exclusion", worst: "nobody got it for 6.8s",
			history: `0 holds a tok=1 until=1001; 2 fault_begin b f=client; 2 ask b
				3 evidence; 4 unlocks a; 1000 gave_up b; 1100 fault_end b; 1200 ask c
				8000 gave_up c`},
		{name: "a ghost that goes", held: "exclusion fencing freed", worst: "at most 800ms",
			history: `0 holds a tok=1 until=1001; 2 fault_begin b f=client; 2 ask b
				3 evidence; 4 unlocks a; 1000 gave_up b; 1100 fault_end b; 1200 ask c
				2000 granted c tok=2 until=3000`},
		{name: "served with a server down", held: "kept served",
			history: `0 ask a; 0 granted a tok=1 until=1001; 1 fault_begin f=down v=1; 2 evidence
				500 ask b n=m; 600 granted b tok=1 n=m until=1500; 8000 fault_end`},
		{name: "not served with a server down", broken: "kept served",
			history: `0 ask a; 0 granted a tok=1 until=1001; 1 fault_begin f=down v=1; 2 evidence
				500 renewed a until=1500; 1001 told_lost a; 13500 fault_end`},
		{name: "not served for a moment with a server down", held: "kept",
			history: `0 ask a; 0 granted a tok=1 until=1001; 1 fault_begin f=down v=1; 2 evidence
				4000 fault_end`},
		{name: "not served with more servers down than it declares", broken: "served", held: "kept",
			history: `0 ask a; 0 granted a tok=1 until=1001; 1 fault_begin f=down v=2; 2 evidence
				4000 fault_end`},
		{name: "lost for no reason", broken: "kept",
			history: `0 holds a tok=1 until=1001; 400 renewed a until=1400; 900 told_lost a`},
		{name: "a name that is blocked after a restart", broken: "freed", held: "exclusion kept",
			history: `0 holds a tok=1 until=1001; 2 ask b; 3 fault_begin f=restart; 4 evidence
				500 fault_end; 600 unlocks a; 602 ask c n=other
				700 granted c n=other tok=2 until=1700; 701 unlocks c n=other; 9000 gave_up b`},
		{name: "a name that is free soon after a restart", held: "exclusion fencing freed kept",
			history: `0 holds a tok=1 until=1001; 2 ask b; 3 fault_begin f=restart; 4 evidence
				500 fault_end; 600 unlocks a; 602 ask c n=other
				5700 granted c n=other tok=2 until=6700; 7000 granted b tok=3 until=8000`},
		{name: "a service that has not come back after a restart", held: "exclusion kept",
			history: `0 holds a tok=1 until=1001; 2 ask b; 3 fault_begin f=restart; 4 evidence
				500 fault_end; 600 unlocks a; 9000 gave_up b`},
		{name: "lost as the machine stalled", aside: "kept",
			history: `0 holds a tok=1 until=1001; 400 renewed a until=1400; 1100 stall a ms=700
				1100 told_lost a`},
		{name: "a lease that is never renewed", broken: "kept",
			history: `0 holds a tok=1 until=1001; 1001 told_lost a`},
		{name: "lost as its process was late again and again", aside: "kept",
			worst: "no reason given. In the 1s before, processes waited for a processor for 270ms, and an answer",
			history: `0 holds a tok=1 until=1001; 300 stall a ms=45; 500 stall a ms=45; 600 stall a ms=45
				700 stall ms=45; 800 stall a ms=45; 900 stall a ms=45; 1001 told_lost a`},
		{name: "lost as another process was late again and again", broken: "kept",
			history: `0 holds a tok=1 until=1001; 300 stall x ms=45; 500 stall x ms=45; 600 stall x ms=45
				700 stall x ms=45; 800 stall x ms=45; 900 stall x ms=45; 1001 told_lost a`},
		{name: "lost as answers were due", aside: "kept", worst: "answer of its servers was due for 300ms",
			history: `0 holds a tok=1 until=1001; 600 slow a ms=200; 601 slow a ms=100; 1001 told_lost a
				1002 slow a ms=100`},
		{name: "lost where no proxy sees answers", aside: "kept", worst: "servers answered: why",
			history: `0 holds a tok=1 until=1001; 1001 told_lost a; 2000 slow a ms=2000 d=why`},
		{name: "lost as answers were due to another", broken: "kept",
			history: `0 holds a tok=1 until=1001; 900 slow x ms=800; 1001 told_lost a`},
		{name: "taken away as answers were due", broken: "kept",
			history: `0 holds a tok=1 until=1001; 900 slow a ms=800; 901 stall a ms=45; 902 told_lost a`},
		{name: "lost as answers were due of servers that are away", broken: "kept",
			history: `0 holds a tok=1 until=1001; 1 fault_begin f=down v=1; 2 evidence; 1001 slow a ms=900
				1001 told_lost a; 2000 fault_end`},
		{name: "told late by a process that was late", held: "exclusion fencing", aside: "told",
			history: `0 fault_begin f=client; 0 holds a tok=1 until=1001; 2 evidence; 2 ask b
				1100 granted b tok=2 until=9001; 1150 stall a ms=45; 1210 stall a ms=45; 1280 told_lost a; 1700 fault_end`},
		{name: "nobody got it, as answers were due", held: "exclusion", aside: "freed",
			history: `0 holds a tok=1 until=1001; 2 ask b; 100 fault_begin a f=killed; 110 evidence
				7000 slow b ms=6500; 8000 gave_up b`},
		{name: "nobody got it, where no proxy sees answers", held: "exclusion", broken: "freed",
			history: `0 holds a tok=1 until=1001; 2 ask b; 100 fault_begin a f=killed; 110 evidence
				8000 gave_up b; 8001 slow b ms=8000 d=why`},
		{name: "nobody got it, as answers were due from before the service worked", broken: "freed",
			held: "exclusion kept",
			history: `0 holds a tok=1 until=1001; 2 ask b; 3 fault_begin f=restart; 4 evidence
				500 fault_end; 600 unlocks a; 602 ask c n=other; 700 granted c n=other tok=2 until=1700
				701 unlocks c n=other; 8999 slow b ms=8500; 9000 gave_up b`},
		{name: "nobody got it, as answers were due of a service that worked", held: "exclusion kept", aside: "freed",
			history: `0 holds a tok=1 until=1001; 2 ask b; 3 fault_begin f=restart; 4 evidence
				500 fault_end; 600 unlocks a; 602 ask c n=other; 700 granted c n=other tok=2 until=1700
				701 unlocks c n=other; 8999 slow b ms=8200; 9000 gave_up b`},
		{name: "nobody got it, as the process that waits was late", held: "exclusion", aside: "freed",
			history: `0 holds a tok=1 until=1001; 2 ask b; 100 fault_begin a f=killed; 110 evidence
				500 stall b ms=45; 1000 stall b ms=45; 2150 gave_up b`},
		{name: "two at once, with a fault that nobody saw", broken: "exclusion", aside: "fencing told",
			history: `0 fault_begin f=client; 0 holds a tok=1 until=1001; 2 ask b
				900 granted b tok=2 until=1901`},
	} {
		t.Run(c.name, func(t *testing.T) {
			judged := check.New(run())
			_, some := judged.Trial(script(t, c.history))
			r := judged.Report()
			broken, held, aside := verdicts(r)
			assert.Equal(t, aside != "", some)
			assert.Equal(t, []string{c.broken, c.held, c.aside}, []string{broken, held, aside})
			worst := ""
			for _, row := range r.Rows {
				cell := row.Cells[0]
				if len(broken) == 0 || cell.Verdict == history.Broken {
					worst += cell.Worst + cell.Reason + "\n"
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

// What is declared decides what is a defect. Where servers fail, a lease that is lost is nobody's
// promise, and a row of its own, though its holder was told in time; of another's lock nothing is
// declared.
func TestWhatIsNotDeclaredIsNoDefect(t *testing.T) {
	const two = `0 fault_begin f=%s; 0 holds a tok=1 until=1001; 1 evidence; 2 ask b
		900 granted b tok=2 until=1901; 901 unlocks b; 903 holds b tok=2 until=1901`
	const lost = `0 holds a tok=1 until=1001; 2 fault_begin f=%s; 3 evidence; 400 renewed a until=1400
		500 fault_end; 1400 told_lost a`
	lags := run()
	lags.Services[0].Declared.SurvivesFailover = false
	lags.Faults = append(lags.Faults, history.Fault{ID: "failover", Class: history.Failover})
	for fault, verdict := range map[string]history.Verdict{"client": history.Broken, "restart": history.Broken,
		"failover": history.Undeclared, "data_lost": history.Undeclared} {
		r := check.Check(lags, script(t, fmt.Sprintf(two, fault)))
		assert.Equal(t, verdict, cell(t, r, "exclusion/"+fault).Verdict, fault)
		assert.Equal(t, verdict, cell(t, r, "fencing/"+fault).Verdict, fault)
		headline := `^s let two holders in under ` + fault + `, which it does not promise to prevent\. ` +
			`(No service broke a promise: \d+ checked|No promise could be checked)\.$`
		if verdict == history.Broken {
			headline = `^\d of \d+ promises BROKEN: s: exclusion under ` + fault + `; s: told under ` + fault +
				`; s: fencing under ` + fault + `\.$`
			assert.Positive(t, r.Broken)
			assert.Equal(t, verdict, r.Rows[0].Cells[0].Verdict, "the worst is first")
		}
		assert.Regexp(t, headline, r.Headline)
	}
	for _, fault := range []string{"server", "down", "restart", "data_lost"} {
		r := check.Check(run(), script(t, fmt.Sprintf(lost, fault)))
		assert.Equal(t, history.Undeclared, cell(t, r, "kept/"+fault).Verdict, fault)
	}
	peer := run()
	peer.Services[0].Declared.Exclusion = "none"
	r := check.Check(peer, script(t, "0 holds a until=1001; 400 renewed a until=1400; 900 told_lost a"))
	assert.Zero(t, r.Broken)
}

// The TTL of a holder that was killed counts unless its lock is declared to be free at once, and twice where somebody
// has to begin to watch it.
func TestADeadHolderIsGoneWhenThatIsDeclared(t *testing.T) {
	for declared, latest := range map[string]int{"at once": 1100, "after the TTL": 2100, "watched for the TTL": 3100} {
		for _, granted := range []int{latest - 50, latest + 50} {
			r := run()
			r.Services[0].Declared.DeadHolder = declared
			c := cell(t, check.Check(r, script(t, fmt.Sprintf(`0 holds a tok=1 until=1001; 2 ask b; 100 fault_begin a f=killed
				110 evidence; %d granted b tok=2 until=9000`, granted))), "freed/killed")
			assert.Equal(t, granted > latest, c.Verdict == history.Broken, "%s, granted at %d: %v", declared, granted, c.Verdict)
		}
	}
}

// A kernel without a processor to spare takes seconds to end a process, and keeps its locks until then.
func TestAHolderIsDeadWhenItsProcessHasGone(t *testing.T) {
	for end, want := range map[string]history.Verdict{
		"110 evidence; 3300 granted b tok=2 until=9000":  history.Broken,
		"3300 granted b tok=2 until=9000; 3500 evidence": history.Held,
	} {
		r := run()
		r.Services[0].Declared.DeadHolder = "at once"
		c := cell(t, check.Check(r, script(t, "0 holds a tok=1 until=1001; 2 ask b; 100 fault_begin a f=killed; "+end)),
			"freed/killed")
		assert.Equal(t, want, c.Verdict, end)
	}
}

// again is the same trial once more, the i-th.
func again(trial []history.Event, i int) []history.Event {
	trial = slices.Clone(trial)
	for j := range trial {
		e := &trial[j]
		e.At += int64(i) * 20e9
		if e.Until != 0 {
			e.Until += int64(i) * 20e9
		}
		e.Trial = fmt.Sprint("t", i)
	}
	return trial
}

// What a cell counts: trials, those broken, and what is known if none was.
func TestTrialsAreCounted(t *testing.T) {
	good := script(t, "0 holds a tok=1 until=1001; 2 ask b; 3 unlocks a; 5 granted b tok=2 until=1100")
	bad := script(t, "0 holds a tok=1 until=1001; 2 ask b; 5 granted b tok=2 until=1100")
	var events []history.Event
	for i := range 60 {
		one := good
		if i == 7 {
			one = bad
		}
		events = append(events, again(one, i)...)
	}
	r := check.Check(run(), events)
	assert.Equal(t, 60, r.Trials)
	x := cell(t, r, check.Exclusion)
	assert.Equal(t, []any{60, 1, "t7", history.Broken},
		[]any{x.Trials, x.Broken, x.Witness.Trial, x.Verdict})
	assert.Equal(t, "t7", x.Outcomes[0].Trial)
	lost := again(script(t, "0 holds a tok=1 until=1001; 900 slow a ms=500; 1001 told_lost a"), 60)
	c := cell(t, check.Check(run(), append(events, lost...)), check.Kept)
	assert.Equal(t, []any{60, 1, history.Inconclusive}, []any{c.Trials, c.Set, c.Verdict}, "a lease was lost: it is not held")
	k := cell(t, r, check.Fencing)
	assert.Equal(t, []any{60, 0, history.Held}, []any{k.Trials, k.Broken, k.Verdict})
	assert.Equal(t, history.NotTried, cell(t, r, check.Exclusion+"/client").Verdict)
	assert.NotEmpty(t, cell(t, r, check.Exclusion+"/client").Reason)
}
