package bridge

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/probe"
)

// Inspect implements [locker.Inspector]; Where says on which of the two services the
// name is held.
func (b *Backend) Inspect(ctx context.Context, name string) (locker.State, error) {
	var on [2]locker.State
	for i := range b.sides {
		var err error
		if on[i], err = b.sides[i].inspect(ctx, name); err != nil {
			return locker.State{}, err
		}
	}
	return b.merge(on), nil
}

func (s *side) inspect(ctx context.Context, name string) (locker.State, error) {
	in, ok := s.Backend.(locker.Inspector)
	if !ok {
		return locker.State{}, s.cannot("tell who holds a lock")
	}
	st, err := in.Inspect(ctx, s.prefix+name)
	st.Token = s.fromBase(st.Token)
	return st, s.fail(err)
}

func (s *side) cannot(what string) error {
	return s.fail(fmt.Errorf("it cannot %s: %w", what, errors.ErrUnsupported))
}

// merge is the state of a name on both services; the labels of the waiters say which
// URLs they use, and so do those of sharers who use one. If two hold it, the holder is the
// one on the second service, for which the other one waits.
func (b *Backend) merge(on [2]locker.State) locker.State {
	label, pair := [2]string{}, [2]bool{}
	for i := range on {
		label[i], pair[i] = strings.CutSuffix(on[i].Label, b.mark)
	}
	i := 0
	if on[1].Held {
		i = 1
	}
	st := on[i]
	st.Label = label[i]
	st.Waiters = -1
	if on[0].Waiters >= 0 && on[1].Waiters >= 0 {
		st.Waiters = on[0].Waiters + on[1].Waiters
	}
	st.Waiting = b.labels([2][]string{on[0].Waiting, on[1].Waiting})
	sharing := [2][]string{on[0].Sharing, on[1].Sharing}
	if !together(on) {
		sharing[1-i] = nil
	}
	st.Sharing = b.labels(sharing)
	st.Sharing = st.Sharing[:min(len(st.Sharing), maxSharing)]
	for i, l := range st.Sharing {
		st.Sharing[i] = strings.TrimSuffix(l, b.mark)
	}
	switch {
	case !st.Held:
	case together(on):
		st.Where = "both"
		st.Token = max(on[0].Token, on[1].Token)
		if st.Sharers = max(on[0].Sharers, on[1].Sharers); st.Sharers > 0 {
			st.Token = 0 // those with both have none
		}
		if on[0].Remaining == 0 || on[1].Remaining != 0 {
			st.Remaining = max(on[0].Remaining, on[1].Remaining)
		}
	case on[0].Held && on[1].Held:
		st.Where = fmt.Sprintf("%s only; %s is held by %s", b.sides[1].name, b.sides[0].name, label[0])
		if pair[0] {
			st.Where += ", who waits"
		}
	case pair[i]:
		st.Where = b.sides[i].name + ", by one who takes both"
	default:
		st.Where = b.sides[i].name + " only"
	}
	return st
}

// together reports whether those who hold a name on the two services are the same, or share
// it.
func together(on [2]locker.State) bool {
	return on[0].Held && on[1].Held &&
		(on[0].Label == on[1].Label || on[0].Sharers > 0 && on[1].Sharers > 0)
}

// maxSharing is how many labels State.Sharing has.
const maxSharing = 16

// labels are those of both services, each once; that of a program with one URL says which.
func (b *Backend) labels(on [2][]string) (all []string) {
	for i := range on {
		for _, l := range on[i] {
			if !strings.HasSuffix(l, b.mark) {
				l += " [" + b.sides[i].name + "]"
			}
			if !slices.Contains(all, l) {
				all = append(all, l)
			}
		}
	}
	return all
}

// List implements [locker.Lister]: names that are held or waited for on either
// service.
func (b *Backend) List(ctx context.Context, prefix string, found func(string, locker.State) error) error {
	names, err := b.list(ctx, prefix)
	if err != nil {
		return err
	}
	for name, on := range names {
		if err := found(name, b.merge(on)); err != nil {
			return err
		}
	}
	return nil
}

func (b *Backend) list(ctx context.Context, prefix string) (map[string][2]locker.State, error) {
	names := make(map[string][2]locker.State)
	for i := range b.sides {
		for found, err := range b.sides[i].client.List(ctx, prefix) {
			if err != nil {
				return nil, b.sides[i].fail(err)
			}
			on := names[found.Name]
			on[i] = found.State
			names[found.Name] = on
		}
	}
	return names, nil
}

// Break implements [locker.Breaker]. If two hold the name, it takes the name from the
// holder on the second service, for which the other one waits.
func (b *Backend) Break(ctx context.Context, name string) (locker.State, error) {
	var on [2]locker.State
	var breakers [2]locker.Breaker
	for i := range b.sides {
		s := &b.sides[i]
		var err error
		if on[i], err = s.inspect(ctx, name); err != nil {
			return locker.State{}, err
		}
		var ok bool
		if breakers[i], ok = s.Backend.(locker.Breaker); !ok {
			return locker.State{}, s.cannot("break a lock")
		}
	}
	for i := range b.sides {
		if !on[i].Held || i == 0 && on[1].Held && !together(on) {
			continue
		}
		s := &b.sides[i]
		if _, err := breakers[i].Break(ctx, s.prefix+name); err != nil {
			return locker.State{}, s.fail(err)
		}
	}
	return b.merge(on), nil
}

// Check implements [locker.Checker]. It returns the findings of both services, the
// names that are held on only one of them, and whether tokens keep rising for names
// that nobody locks in the middle of the move; for that it locks two names of its
// own. Names are held on one service only by programs that do not know the second
// service yet, or do not need the first one any more.
func (b *Backend) Check(ctx context.Context) ([]locker.Finding, error) {
	if err := b.checkApart(ctx); err != nil {
		return nil, err
	}
	var all []locker.Finding
	for i := range b.sides {
		s := &b.sides[i]
		found, err := s.client.Check(ctx)
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return nil, s.fail(err)
		}
		for _, f := range found {
			f.What = s.name + ": " + f.What
			all = append(all, f)
		}
	}
	names, err := b.list(ctx, "")
	if err != nil {
		return nil, err
	}
	for i := range b.sides {
		var alone []string
		for _, name := range slices.Sorted(maps.Keys(names)) {
			on := names[name][i]
			for _, label := range append(on.Sharing, on.Label) {
				if on.Held && !strings.HasSuffix(label, b.mark) {
					alone = append(alone, fmt.Sprintf("%q by %q", name, label))
					break
				}
			}
		}
		f := locker.Finding{What: "names held on " + b.sides[i].name + " only", Found: "none"}
		if len(alone) > 0 {
			f.Severity = locker.SeverityInfo
			f.Found = fmt.Sprintf("%d: %s", len(alone), strings.Join(alone[:min(len(alone), shown)], ", "))
			f.Advice = "these programs use this URL alone: wait for them before a step that leaves it out"
		}
		all = append(all, f)
	}
	for i := range b.sides {
		f, err := b.freshTokens(ctx, &b.sides[i], &b.sides[1-i])
		if err != nil {
			return nil, err
		}
		if f.What != "" {
			all = append(all, f)
		}
	}
	return all, nil
}

// freshTokens checks whether a name that moves from one service to the other without
// being locked on both begins there with a higher token. If a name is locked on both,
// the service that is behind is raised.
func (b *Backend) freshTokens(ctx context.Context, from, to *side) (f locker.Finding, err error) {
	last, err := from.freshToken(ctx)
	if err != nil || last == 0 {
		return f, err
	}
	var next uint64
	for range 20 { // a token may be made of a clock, and two servers have two
		if next, err = to.freshToken(ctx); err != nil || next == 0 || next >= last {
			break
		}
		if err = clock.Sleep(ctx, 50*time.Millisecond); err != nil {
			break
		}
	}
	if err != nil || next == 0 {
		return f, err
	}
	f = locker.Finding{
		What: fmt.Sprintf("tokens of names that are not locked on both before they are locked on %s only",
			to.name),
		Found: "they rise",
	}
	if next < last {
		f.Severity = locker.SeverityInfo // it is the way back
		if to == &b.sides[1] {
			f.Severity = locker.SeverityWarning
		}
		f.Found = fmt.Sprintf("they fall: %s gives %d to a new name, and %s %d", from.name, last, to.name, next)
		f.Advice = fmt.Sprintf("a resource that checks tokens would refuse the next holder of such a name: "+
			"write token_base=%d into the URL of %s, "+
			"now and for good, or lock each of these names once with both URLs", last+last/64+1<<20, to.name)
	}
	return f, nil
}

// freshToken returns the token of a name that was never used.
func (s *side) freshToken(ctx context.Context) (token uint64, err error) {
	err = s.locked(ctx, freshName(), func(l *locker.Lease) error {
		token, _ = l.Token()
		return nil
	})
	return token, err
}

// checkApart returns an error that matches ErrInvalid if both are one service: a name
// that nobody uses is then held on the second one as soon as it is on the first.
func (b *Backend) checkApart(ctx context.Context) error {
	name := freshName()
	return b.sides[0].locked(ctx, name, func(*locker.Lease) error {
		err := b.sides[1].locked(ctx, name, func(*locker.Lease) error { return nil })
		if errors.Is(err, locker.ErrHeld) {
			return invalid("%s and %s lead to the same locks: give two services, or two prefixes", b.sides[0].name,
				b.sides[1].name)
		}
		return err
	})
}

// freshName returns the name of a lock that nobody else uses.
func freshName() string { return "locker-check/" + rand.Text() }

// locked calls do while it holds name, which is a fresh one, on this service alone.
func (s *side) locked(ctx context.Context, name string, do func(*locker.Lease) error) error {
	l, err := s.client.TryLock(ctx, name)
	if err != nil {
		return s.fail(err)
	}
	err = do(l)
	var remains probe.Remains
	unlocked := l.Unlock(ctx)
	if unlocked == nil && l.As(&remains) {
		_ = remains(ctx) // without the right to, it stays as of any name
	}
	return cmp.Or(err, s.fail(unlocked))
}

// shown is the greatest number of names in a finding.
const shown = 10
