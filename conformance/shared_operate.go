package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
)

func checkSharedOperate(s *trial) {
	parts := []func(){s.inspectShared, s.breakShared, s.notifyShared}
	if s.h.Delete != nil {
		parts = append(parts, s.deleteShared)
	}
	s.together(parts...)
}

// labelled is a sharer's hold with that label; gone is called when the service says that
// it has ended.
func (s *trial) labelled(b locker.Backend, name, label string, gone func()) locker.Grant {
	s.Helper()
	req := s.shares(name, s.long)
	req.Label, req.Lost = label, gone
	grant, err := s.askWith(b, req)
	if err != nil {
		s.broken(fmt.Sprintf("Acquire of a sharer failed: %v", err), ofError(err))
	}
	return grant
}

// isShared fails if st is not that of so many sharers.
func (s *trial) isShared(who string, st locker.State, sharers int, token uint64, labels ...string) {
	s.Helper()
	slices.Sort(st.Sharing)
	bad := st.Held != (sharers > 0) || st.Sharers != sharers || st.Token != 0 && st.Token != token ||
		st.Remaining < 0 || st.Remaining > s.long && st.Remaining > s.life(s.long)
	if st.Label != "" {
		bad = bad || !slices.Contains(labels, st.Label)
	}
	if st.Sharing != nil {
		bad = bad || !slices.Equal(st.Sharing, labels)
	}
	if bad {
		s.broken(fmt.Sprintf("%d sharers with the labels %q and the token %d hold a name, and %s says %+v",
			sharers, labels, token, who, st),
			"the State is that of one of them, or of those that were there before; labels stand in it "+
				"once each; or another unit of time")
	}
}

func (s *trial) inspectShared() {
	name := s.name("inspected")
	b, writer := s.backend(), s.client()
	watcher, ok := s.backend().(locker.Operator)
	if !ok {
		return
	}
	inspect := func() locker.State {
		s.Helper()
		st, err := watcher.Inspect(s.within(s.patience()), name)
		if err != nil {
			s.broken(fmt.Sprintf("Inspect failed: %v", err),
				"a name that is shared is looked for in another place")
		}
		return st
	}
	var holds []locker.Grant
	for _, label := range []string{"a é", "b", "a é"} {
		holds = append(holds, s.labelled(b, name, label, func() {}))
	}
	token := holds[0].Token
	s.isShared("Inspect", inspect(), 3, token, "a é", "b")
	var listed []locker.State
	var err error
	for st, e := range watcher.List(s.within(s.patience()), name) {
		if err = e; err == nil {
			listed = append(listed, st)
		}
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		if err != nil || len(listed) != 1 {
			s.broken(fmt.Sprintf("a name is held by sharers, and List tells of it %d times (error %v)",
				len(listed), err), "List tells of what is stored, and not of names")
		}
		if listed[0].Sharers != 0 || !listed[0].Held {
			s.isShared("List", listed[0], 3, token, "a é", "b")
		}
	}
	leave, in := s.writing(writer, name, s.long)
	if st := inspect(); st.Waiters > 1 || st.Waiters == 0 {
		s.broken(fmt.Sprintf("a writer waits behind sharers, and Inspect says that %d wait", st.Waiters),
			"sharers are counted, or who waits is not: -1 says so")
	}
	leave()
	<-in
	s.release(holds[1].Hold)
	s.isShared("Inspect", inspect(), 2, token, "a é")
	s.release(holds[0].Hold)
	s.release(holds[2].Hold)
	if st := inspect(); st.Held || st.Sharers != 0 {
		s.broken(fmt.Sprintf("of a name whose sharers have left, Inspect says %+v", st),
			"what Inspect reads is not what Release removes")
	}
	w := s.acquireNow(b, s.request(name, s.long), "when all sharers had left")
	if st := inspect(); !st.Held || st.Sharers != 0 || st.Sharing != nil {
		s.broken(fmt.Sprintf("of a name that one holds alone, Inspect says %+v", st),
			"Sharers is for those that hold together")
	}
	s.release(w)
}

// told are sharers whose holds end behind their back.
type told struct {
	s     *trial
	holds []locker.Hold
	lost  []*atomic.Bool
}

func (t *told) add(b locker.Backend, name string) locker.Grant {
	lost := new(atomic.Bool)
	grant := t.s.labelled(b, name, "conformance", func() { lost.Store(true) })
	t.holds, t.lost = append(t.holds, grant.Hold), append(t.lost, lost)
	return grant
}

// all fails if one of them is not told.
func (t *told) all(what string) {
	s := t.s
	s.Helper()
	for i, hold := range t.holds {
		if !s.eventually(s.soon, func() bool {
			ctx, cancel := context.WithTimeout(s.Context(), s.soon)
			defer cancel()
			_, err := hold.Renew(ctx)
			return t.lost[i].Load() || errors.Is(err, locker.ErrLost)
		}) {
			s.broken(fmt.Sprintf("a name with %d sharers was %s, and sharer %d was not told: its Renew "+
				"succeeds", len(t.holds), what, i+1),
				"one of the sharers is removed, or Renew does not look for its own entry, or puts it back "+
					"(R12)")
		}
		if err := hold.Release(s.within(s.patience())); !errors.Is(err, locker.ErrLost) {
			s.broken(fmt.Sprintf("a name with sharers was %s, and Release of sharer %d returned %v", what,
				i+1, err), "it does not look whether there was something to remove")
		}
	}
}

func (s *trial) breakShared() {
	name := s.name("broken")
	a, b, operator, reader, writer := s.backend(), s.backend(), s.backend(), s.client(), s.client()
	breaker, ok := operator.(locker.Operator)
	if !ok {
		return
	}
	sharers := &told{s: s}
	token := sharers.add(a, name).Token
	sharers.add(b, name)
	sharers.add(b, name)
	l := s.join(reader, name)
	near := s.share(b, name+":", s.long)
	leave, in := s.writing(writer, name, s.long)
	st, err := breaker.Inspect(s.within(s.patience()), name)
	if err == nil {
		err = breaker.Break(s.within(s.patience()), st)
	}
	if errors.Is(err, errors.ErrUnsupported) { // some services cannot take a lock from a holder that lives
		for _, hold := range sharers.holds {
			s.renew(hold)
			s.release(hold)
		}
		s.release(near.Hold)
		leave()
		s.unlock(l)
		if w := <-in; w != nil {
			s.unlock(w)
		}
		return
	}
	if err != nil || !st.Held || st.Sharers != len(sharers.holds)+1 || st.Token != 0 && st.Token != token {
		s.broken(fmt.Sprintf("Break of a name with %d sharers and the token %d returned %+v (error %v)",
			len(sharers.holds)+1, token, st, err), "it is the State of one of them, or that after")
	}
	select {
	case w := <-in:
		if w == nil {
			s.FailNow()
		}
		sharers.all("broken")
		if !s.eventually(s.soon, func() bool {
			return l.Err() != nil || errors.Is(l.Renew(s.within(s.patience())), locker.ErrLost)
		}) {
			s.broken("a name with sharers was broken, and the lease of one is renewed",
				"one of the sharers is removed")
		}
		if err := w.Renew(s.within(s.patience())); err != nil {
			s.broken(fmt.Sprintf("sharers were broken, their holds ended, and Renew of the writer after "+
				"them failed: %v", err), "a late release removes what has its name, and not what has its "+
				"owner")
		}
		s.unlock(w)
	case <-time.After(s.patience()):
		s.broken("all sharers of a name were broken, and a writer that waited did not get in",
			"one of the sharers is removed, or nobody tells those who wait")
	}
	s.release(near.Hold)
}

// deleteShared removes all sharers behind the backend's back.
func (s *trial) deleteShared() {
	name := s.name("deleted")
	a, b := s.backend(), s.backend()
	sharers := &told{s: s}
	sharers.add(a, name)
	sharers.add(b, name)
	sharers.add(b, name)
	s.remove(name)
	w := s.freeWithin(s.soon+s.ttl, s.client(), name, "the harness's Delete does not remove all sharers")
	sharers.all("deleted")
	if err := w.Renew(s.within(s.patience())); err != nil {
		s.broken(fmt.Sprintf("sharers were deleted, their holds ended, and Renew of the writer after them "+
			"failed: %v", err), "a late release removes what has its name, and not what has its owner")
	}
	s.unlock(w)
}

// notifyShared listens for the end of sharers, and of a writer.
func (s *trial) notifyShared() {
	name := s.name("notified")
	a, b, listener := s.backend(), s.backend(), s.backend()
	if _, ok := listener.(locker.Notifier); !ok {
		return
	}
	wakes := func(what, cause string, waits locker.Request, end func()) {
		s.Helper()
		told, stop := s.listen(listener, name)
		defer stop()
		waits.Wait, waits.Queued = true, func() {}
		held := s.refusal(listener, waits, "while others held the name", besideSharers)
		end()
		if !s.eventually(s.prompt(), told) {
			s.broken(fmt.Sprintf("%v after %s, wake of one that waits was not called (shared: %t)",
				s.prompt(), what, waits.Shared), cause)
		}
		if held.Leave != nil {
			_ = held.Leave(s.within(s.patience()))
		}
	}
	first, second := s.share(a, name, s.long), s.share(b, name, s.long)
	wakes("the last sharer had left", "a release tells those who wait only when a writer has left",
		s.request(name, s.long), func() {
			s.release(first.Hold)
			s.release(second.Hold)
		})
	w := s.acquireNow(a, s.request(name, s.long), "when all sharers had left")
	wakes("the writer had left", "a writer's release tells no sharers", s.shares(name, s.long),
		func() { s.release(w) })
	s.nothingLeft(name)
	name = s.name("yields")
	w = s.acquireNow(a, s.request(name, s.long), "of a name that nobody has had")
	if p, ok := w.(locker.Passer); ok {
		wakes("a Pass that yields", "it asks only for writers that wait", s.shares(name, s.long), func() {
			grant, err := p.Pass(s.within(s.patience()), s.request(name, s.long), true)
			if err != nil || grant.Hold != nil {
				s.broken(fmt.Sprintf("Pass with yield, while a sharer of another client waited, passed the lock on "+
					"all the same (error %v)", err), "it asks only for writers that wait")
			}
		})
	} else {
		s.release(w)
	}
	if !s.polled(listener) {
		return
	}
	first = s.share(a, name, s.long)
	held := s.refusal(b, s.waits(name, s.long), "while a sharer held the name", besideSharers)
	wakes("a writer that waited had left", "Leave tells nobody: a sharer that was refused because of the "+
		"note waits for its end", s.shares(name, s.long), func() {
		if err := held.Leave(s.within(s.patience())); err != nil {
			s.broken(fmt.Sprintf("Leave failed: %v", err), "")
		}
	})
	s.release(first.Hold)
	s.nothingLeft(name)
}
