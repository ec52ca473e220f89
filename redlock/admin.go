package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/redisnode"
)

// What people ask of a quorum with locks in it: who holds, which names are there,
// free this one, is it set up as it should be.

// fromAll asks every node, and waits for the answers as long as limit. The causes are by
// node; err is that of too few answers.
func fromAll[T any](ctx context.Context, b *Backend, op string, limit time.Duration,
	ask func(ctx context.Context, n *node) (T, error)) (answers []T, causes []error, err error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answers, causes = make([]T, len(b.nodes)), b.unanswered()
	for o := range each(limited, b, func(n *node) (T, error) { return ask(limited, n) }) {
		answers[o.node], causes[o.node] = o.got, ourLimit(ctx, o.err)
	}
	return answers, causes, b.tooFew(ctx, op, causes)
}

// Inspect implements [driver.Operator]: held is what a quorum of nodes has, or
// may have where some do not answer; if ctx ends before they could, it is not known. How many
// wait is not known to Redis. A key that is no lock is a node's error, as it is to those who ask
// for the lock.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	s, err := b.inspect(ctx, "inspect", name)
	if err != nil {
		return driver.State{}, err
	}
	return b.state(s), nil
}

// seen is what the nodes that have answered know of a lock, and the owner value that has it.
type seen struct {
	name, value string
	statuses    []redisnode.Status
}

func (b *Backend) inspect(ctx context.Context, op, name string) (s seen, err error) {
	k := redisnode.KeysOf(name, "", "", "")
	ask := func(ctx context.Context, n *node) (redisnode.Status, error) {
		s, err := n.StatusOf(name, n.Do(ctx, n.Inspect(&k, k.Quorum())))
		if err == nil && s.Foreign {
			err = n.Foreign(name)
		}
		return s, err
	}
	s.name = name
	statuses, causes, err := fromAll(ctx, b, op, b.patience(0), ask)
	if err != nil {
		return s, err
	}
	// The holder is who has a quorum, or may have one with the nodes that are silent.
	most, silent, at := 0, 0, map[string]int{}
	for i, status := range statuses {
		if f := (*redisnode.ForeignError)(nil); causes[i] == nil {
			s.statuses = append(s.statuses, status)
		} else if !errors.As(causes[i], &f) {
			silent++
		}
	}
	for _, status := range s.statuses {
		if status.Held {
			at[status.Owner]++
		}
	}
	for value, n := range at {
		if n+silent >= b.quorum && n > most {
			most, s.value = n, value
		}
	}
	if s.value != "" && most < b.quorum && (ctx.Err() != nil || b.isClosed()) { // the silent ones were not waited for
		return s, b.failure(ctx, b.quorumError(op, "who has it depends on those that have not answered", causes))
	}
	return s, nil
}

// state makes one state of what the nodes have of the holder.
func (b *Backend) state(s seen) driver.State {
	state := driver.State{Name: s.name, Holder: s.value, Waiters: -1}
	if s.value == "" {
		return state
	}
	var left []time.Duration
	kept := false
	for _, status := range s.statuses {
		if !status.Held || status.Owner != s.value {
			continue
		}
		kept = kept || status.Kept
		left = append(left, max(status.Left, 0))
		state.Since = redisnode.Since(status.Digits)
		token, by, _ := strings.Cut(status.Counter, " ")
		if own, raised := strings.CutPrefix(by, "+"); raised {
			token, by, _ = strings.Cut(own, " ") // its lease's own: see counter.lua
		}
		if n, err := strconv.ParseUint(token, 10, 64); err == nil && by == s.value {
			state.Token = max(state.Token, n)
		}
	}
	slices.SortFunc(left, func(a, b time.Duration) int { return int(b - a) })
	_, state.Label, _ = strings.Cut(s.value, redisnode.LabelMark)
	// It lasts as long as a quorum has it.
	state.Held, state.Remaining = true, left[min(b.quorum, len(left))-1]
	if kept {
		state.KeptUntil = time.Now().Add(state.Remaining)
	}
	return state
}

// List implements [driver.Operator]: names that a quorum holds, or that somebody
// waits for. It yields what it finds while the nodes tell it of names.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	return func(yield func(driver.State, error) bool) {
		walk, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(b.ctx, stop)() // Close may be called in the loop, which takes no name meanwhile
		names, told := make(chan []string), make(chan error, 1)
		if !b.start(func() { told <- b.names(walk, prefix, names) }) {
			yield(driver.State{}, driver.ErrClosed)
			return
		}
		inspect := func(ctx context.Context, name string) (seen, error) {
			s, err := b.inspect(ctx, "list", name)
			if onlyForeign(err) {
				err = nil
			}
			return s, err
		}
		for known := map[string]bool{}; ; {
			var some []string
			select {
			case err := <-told:
				if err != nil {
					yield(driver.State{}, err)
				}
				return
			case some = <-names:
			}
			some = slices.DeleteFunc(some, func(name string) bool { return known[name] })
			for _, name := range some {
				known[name] = true
			}
			for s, err := range redisnode.Each(ctx, some, inspect) {
				if err != nil {
					yield(driver.State{}, err)
					return
				}
				waited := slices.ContainsFunc(s.statuses, func(s redisnode.Status) bool { return s.Waited })
				if st := b.state(s); (st.Held || waited) && !yield(st, nil) {
					return
				}
			}
		}
	}
}

// names sends what the nodes tell, until all have or ctx is done. A name comes as often as there are nodes with it.
func (b *Backend) names(ctx context.Context, prefix string, names chan<- []string) error {
	causes := b.unanswered()
	for o := range each(ctx, b, func(n *node) (none struct{}, err error) {
		err = n.Names(ctx, prefix, func(some []string) bool {
			select {
			case names <- some:
				return true
			case <-ctx.Done():
				return false
			}
		})
		return none, cmp.Or(err, ctx.Err()) // what was cut short is not all
	}) {
		causes[o.node] = o.err
	}
	return b.tooFew(ctx, "list", causes)
}

// onlyForeign reports whether a key in the way, which is no lock, is why each node failed that did.
func onlyForeign(err error) bool {
	q, ok := errors.AsType[*QuorumError](err)
	return ok && !slices.ContainsFunc(q.Causes, func(c NodeError) bool {
		_, foreign := errors.AsType[*redisnode.ForeignError](c.Err)
		return !foreign
	})
}

// Break implements [driver.Operator]: it removes the holder from the nodes that answer, a quorum at least, and
// keeps votes and repairs of the holder out that are still under way there.
func (b *Backend) Break(ctx context.Context, st driver.State) error {
	if st.Holder == "" {
		return nil // nobody is
	}
	k := redisnode.KeysOf(st.Name, st.Holder, "", "")
	_, _, err := fromAll(ctx, b, "break", b.patience(0), func(ctx context.Context, n *node) (none struct{}, _ error) {
		if o := n.Do(ctx, n.Release(&k, redisnode.VoidTime)); o.Err != nil {
			return none, o.Err
		} else if !expected(opRelease, o.Answer, false) {
			return none, n.Unexpected("break", o.Answer)
		}
		return none, nil
	})
	return err
}

// clockTolerance is what the clocks of two servers may differ by before Check
// tells: expiry goes by each server's own, and does not need them to agree.
const clockTolerance = time.Second

// checkTime bounds Check, which makes connections.
const checkTime = 2 * redisnode.DialTimeout

// Check implements [driver.Checker]. It asks for the rights to a name that begins with the prefix of the URL, or
// with none for a Backend that New has made.
func (b *Backend) Check(ctx context.Context) ([]driver.Finding, error) {
	type looked struct {
		redisnode.Server
		findings []driver.Finding
		ahead    time.Duration // of when it was asked
		took     time.Duration
	}
	forgets := driver.SeverityInfo // the restart guard keeps the server out
	if b.opts.NoRestartGuard {
		forgets = driver.SeverityWarning
	}
	ask := func(ctx context.Context, n *node) (l looked, err error) {
		needs := n.Needs(b.prefix + "locker-check")
		needs[0].Severity, needs[0].Advice = driver.SeverityWarning, "the node does not vote, or not release: the lock "+
			"has one node less to spare"
		if !b.opts.NoRestartGuard {
			needs = append(needs, redisnode.Need{
				Commands: [][]string{{"info"}, {"script|load", ""}, {"eval", "", "0"}, {"mget", redisnode.RunsKey}},
				Severity: driver.SeverityWarning, Advice: "the restart guard keeps the node out"})
		}
		asked := time.Now()
		found, servers, err := n.Check(ctx, needs, forgets)
		if err == nil && len(servers) > 0 {
			l.Server = servers[0]
			l.ahead = l.Clock.Sub(asked)
		}
		l.findings, l.took = found, time.Since(asked)
		return l, err
	}
	servers, causes, err := fromAll(ctx, b, "check", checkTime, ask)
	if err != nil {
		return nil, err
	}
	found := []driver.Finding{b.checkCount()}
	runs := map[string]string{}
	var first *looked
	for i, s := range servers {
		if causes[i] != nil {
			found = append(found, driver.Finding{Severity: driver.SeverityWarning,
				What: "node " + b.nodes[i].Addr, Found: causes[i].Error(),
				Advice: "it does not vote: the lock has one node less to spare"})
			continue
		}
		found = append(found, s.findings...)
		if other, ok := runs[s.RunID]; ok && s.RunID != "" {
			found = append(found, driver.Finding{Severity: driver.SeverityProblem, What: "server of " + s.Addr,
				Found:  "the same as " + other,
				Advice: "one vote would count twice: give each server once"})
		}
		runs[s.RunID] = b.nodes[i].Addr
		if s.Replicas > 0 {
			found = append(found, driver.Finding{Severity: driver.SeverityInfo, What: "replicas of " + s.Addr,
				Found: fmt.Sprint(s.Replicas),
				Advice: "Redlock has no use for replicas: never let one take its master's place, since it may lack " +
					"votes"})
		}
		if s.Clock.IsZero() {
			continue
		}
		if first == nil {
			first = &servers[i]
		}
		// Each has read it at some moment while it was looked at: it is ahead by up to that much less.
		off := s.ahead - first.ahead
		if late := max(min(off, s.took), -first.took); (off - late).Abs() > clockTolerance {
			found = append(found, driver.Finding{Severity: driver.SeverityWarning, What: "clock of " + s.Addr,
				Found:  fmt.Sprintf("%v from that of %s", off.Round(time.Millisecond), first.Addr),
				Advice: "a clock that is stepped ends locks early or late: keep the servers' clocks by NTP, slewed"})
		}
	}
	return found, nil
}

// checkCount looks at how many nodes there are.
func (b *Backend) checkCount() driver.Finding {
	f := driver.Finding{What: "number of nodes", Found: fmt.Sprintf("%d, of which %d can fail",
		len(b.nodes), len(b.nodes)-b.quorum)}
	switch {
	case len(b.nodes) < 3:
		f.Severity, f.Advice = driver.SeverityWarning, "no node can fail: give three or five"
	case len(b.nodes)%2 == 0:
		f.Severity, f.Advice = driver.SeverityInfo, "an even number tolerates no more failures than one less, "+
			"and votes can be split evenly"
	}
	return f
}
