package proof_test

import (
	"cmp"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/compare/internal/check"
	"github.com/golockers/locker/compare/internal/history"
)

// histories is how many random histories are compared: all that were promised
// with LOCKER_HISTORIES=100000, as `make search` has it.
func histories(t *testing.T) int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("LOCKER_HISTORIES"), "2000"))
	require.NoError(t, err)
	return n
}

// The checker says of a history what porcupine says of it: that the beliefs of
// holders can be put in an order in which one ends before the next begins, and
// that in this order tokens rise.
func TestTheCheckerAgreesWithPorcupine(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	run := &history.Run{Services: []history.Service{{Name: "s",
		Declared: history.Guarantees{Exclusion: "consensus", Fencing: "unless data is set back",
			Scope: "network"}}}}
	said := make(map[[2]bool]int)
	for i := range histories(t) {
		events, holds := randomHistory(random)
		report := check.Check(run, events)
		exclusion, tokens := holdsUp(report, check.Exclusion), holdsUp(report, check.Fencing)
		said[[2]bool{exclusion, tokens}]++
		alone := porcupine.CheckOperations(model(false), operations(holds))
		both := porcupine.CheckOperations(model(true), operations(holds))
		if !assert.Equal(t, alone, exclusion, "two at once, history %d", i) ||
			!assert.Equal(t, both, exclusion && tokens, "tokens, history %d", i) {
			for _, e := range events {
				t.Logf("%4d %-13s %s tok=%d until=%d", e.At, e.Kind, e.Process, e.Token, e.Until)
			}
			t.FailNow()
		}
	}
	t.Log("what was said of two at once and of tokens, and how often: ", said)
	assert.Len(t, said, 4, "every answer must occur, or nothing is shown")
}

func holdsUp(r *history.Report, rule string) bool {
	for _, row := range r.Rows {
		if row.Rule == rule && row.Cells[0].Verdict == history.Broken {
			return false
		}
	}
	return true
}

// hold is one time in which somebody believed to hold, as porcupine is told.
type hold struct {
	client             int
	asked, granted     int64
	end, released, tok int64
}

// randomHistory makes a few callers lock, renew, lose and unlock at random: it
// is mostly right, and often just so.
func randomHistory(random *rand.Rand) (events []history.Event, holds []hold) {
	const begin, end = 1, 1_000
	clock := make(map[int64]bool) // each event has a time of its own: ties say nothing
	unique := func(at int64) int64 {
		for clock[at] {
			at++
		}
		clock[at] = true
		return at
	}
	var free, token int64 = 10, 1
	idle := make([]int64, 2+random.IntN(2)) // when each client's last call was over
	for range 2 + random.IntN(4) {
		client := random.IntN(len(idle))
		h := hold{client: client}
		h.asked = unique(max(idle[client]+1, free-random.Int64N(15)))
		h.granted = unique(max(h.asked+1, free+random.Int64N(6)-1))
		length := 1 + random.Int64N(20)
		h.tok = token
		token++
		if random.IntN(8) == 0 {
			h.tok = max(1, h.tok-random.Int64N(3))
		}
		process := string(rune('a' + client))
		e := history.Event{Service: "s", Trial: "t", Process: process, Name: "n"}
		add := func(at int64, kind history.Kind, until int64) {
			e.At, e.Kind, e.Until, e.Token = at, kind, until, 0
			if kind == history.Granted {
				e.Token = uint64(h.tok)
			}
			events = append(events, e)
		}
		add(h.asked, history.Ask, 0)
		until := h.granted + 1 + length/2 + random.Int64N(20)
		add(h.granted, history.Granted, until)
		if random.IntN(3) == 0 {
			at := unique(h.granted + 1)
			if at < until {
				until += random.Int64N(10)
				add(at, history.Renewed, until)
			}
		}
		over := unique(max(h.granted+length, events[len(events)-1].At+1))
		if random.IntN(4) == 0 {
			add(over, history.ToldLost, 0)
			h.released = over
		} else {
			add(over, history.UnlockBegin, 0)
			h.released = unique(over + 1 + random.Int64N(10))
		}
		h.end = min(over, until)
		idle[client] = max(h.released, h.end)
		holds = append(holds, h)
		free = h.end - random.Int64N(3)*random.Int64N(3)
		if random.IntN(4) != 0 {
			free = max(free, h.end)
		}
	}
	slices.SortFunc(events, func(a, b history.Event) int { return cmp.Compare(a.At, b.At) })
	events = append([]history.Event{{At: begin - 1, Kind: history.TrialBegin, Service: "s", Trial: "t",
		Value: 1e9}}, events...)
	events = append(events, history.Event{At: end * 10, Kind: history.TrialEnd, Service: "s", Trial: "t"})
	return events, holds
}

// operations tells porcupine of each hold: that it was taken at some time
// between the call and the answer, and given back at some time after the belief
// was over.
func operations(holds []hold) (ops []porcupine.Operation) {
	for i, h := range holds {
		ops = append(ops,
			porcupine.Operation{ClientId: i, Input: attempt{i, h.tok, true}, Call: h.asked, Return: h.granted},
			porcupine.Operation{ClientId: i, Input: attempt{i, h.tok, false}, Call: h.end, Return: 1_000_000})
	}
	return ops
}

type attempt struct {
	hold  int
	token int64
	take  bool
}

type state struct {
	held  int // -1: free
	token int64
}

func model(tokens bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{held: -1} },
		Step: func(from, in, _ any) (bool, any) {
			s, i := from.(state), in.(attempt)
			switch {
			case i.take:
				return s.held == -1 && (!tokens || i.token > s.token), state{i.hold, i.token}
			case s.held == i.hold:
				return true, state{-1, s.token}
			}
			return false, s
		},
	}
}
