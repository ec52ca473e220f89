package conformance

import (
	"errors"
	"fmt"
	"slices"

	"github.com/golockers/locker"
)

func operatorChecks() []check {
	return []check{
		{
			Name: "list",
			Promise: "List tells of each name that begins with the prefix and is held, once, with its " +
				"State, and of no other; a backend without Operator says ErrUnsupported.",
			run: checkList,
		},
		{
			Name: "break",
			Promise: "Break removes the holder of a name, tells who that was, and touches no waiter and no " +
				"other name; the holder learns of it; " +
				"a backend without Operator says ErrUnsupported.",
			run: checkBreak,
		},
	}
}

func checkList(s *trial) {
	b := s.backend()
	lister, ok := s.backend().(locker.Operator) // the engine would hide names that do not begin with the prefix
	if !ok {
		for _, err := range s.client().List(s.within(s.patience()), "") {
			if !errors.Is(err, errors.ErrUnsupported) {
				s.broken(fmt.Sprintf("List of a backend without Operator yielded %v", err),
					"an engine that makes up an answer")
			}
		}
		return
	}
	for _, err := range lister.List(s.within(s.patience()), "") {
		if errors.Is(err, errors.ErrUnsupported) {
			return // an Operator need not have all
		}
	}
	listed := func(prefix string) []string {
		s.Helper()
		var names []string
		var err error
		for st, e := range lister.List(s.within(s.patience()), prefix) {
			if err = e; err == nil && !st.Held {
				s.broken(fmt.Sprintf("List tells of %q, which somebody holds, that it is not held", st.Name),
					"the State is that of another name, or of none")
			}
			if err == nil {
				names = append(names, st.Name)
			}
		}
		if err != nil {
			s.broken(fmt.Sprintf("List failed: %v", err),
				"the service cannot be reached, or a name is decoded in another way than it is encoded")
		}
		slices.Sort(names)
		return names
	}
	const cause = "a prefix is compared as a pattern (_, %, *, ?), as a part of the name, or without case; " +
		"or names are cut or decoded wrongly"
	base := s.name("list")
	under := base + "/a_b%*?["
	c := s.clientOf(b)
	want := []string{under, under + "/1 é", under + "\U0001F512"}
	for _, name := range slices.Concat(want,
		[]string{base + "/aXb%*?[/1", base + "/a_bYY*?[", "x" + under, base + "/A_B%*?["}) {
		l := s.try(c, name, locker.TTL(s.long))
		defer s.unlock(l)
	}
	s.unlock(s.try(c, under+"/free", locker.TTL(s.long)))
	if got := listed(under); !slices.Equal(got, want) {
		s.broken(fmt.Sprintf("of the names that begin with %q, %q are held, and List tells of %q",
			under, want, got), cause)
	}
	if got := listed(base + "/"); len(got) != 6 {
		s.broken(fmt.Sprintf("of the names that begin with %q, 6 are held, and List tells of %q",
			base+"/", got), cause)
	}
	for _, err := range lister.List(s.within(s.patience()), base+"/") {
		if err != nil {
			s.broken(fmt.Sprintf("List failed: %v", err), "the service cannot be reached")
		}
		break // a yield after the end would panic
	}
	if got := listed(under + "/2"); len(got) != 0 {
		s.broken(fmt.Sprintf("no name begins with %q, and List tells of %q", under+"/2", got), cause)
	}
}

func checkBreak(s *trial) {
	b, watcher := s.backend(), s.client()
	name, near := s.name("break"), s.name("break-near")
	breaks := func(name string) locker.State {
		s.Helper()
		st, err := watcher.Inspect(s.within(s.patience()), name)
		if err == nil {
			err = watcher.Break(s.within(s.patience()), st)
		}
		if err != nil {
			s.broken(fmt.Sprintf("Break failed: %v", err),
				"a name that nobody holds is no error, and the owner is not compared")
		}
		return st
	}
	if _, ok := b.(locker.Operator); !ok {
		if err := watcher.Break(s.within(s.patience()), locker.State{Name: name, Held: true, Holder: "x"}); !errors.Is(err, errors.ErrUnsupported) {
			s.broken(fmt.Sprintf("Break of a backend without Operator returned %v", err),
				"an engine that makes up an answer")
		}
		return
	}
	if st := breaks(name); st.Held {
		s.broken(fmt.Sprintf("of a name that nobody holds, Break says %+v", st),
			"the State before is that of another name")
	}
	c := s.clientOf(b, func(o *locker.Options) { o.Label = "broken é" })
	l, other := s.try(c, name, locker.TTL(s.long)), s.try(c, near, locker.TTL(s.long))
	token, _ := l.Token()
	waiting, next := s.client(), make(chan *locker.Lease, 1)
	s.spawn(func() {
		got, err := waiting.Lock(s.within(s.long+s.patience()), name, locker.TTL(s.long))
		if err != nil {
			s.report(fmt.Sprintf("Lock, waiting behind a lock that was broken, failed: %v", err),
				"Break removes the waiters, too")
		}
		next <- got
	})
	s.isWaiting(waiting, 1)
	st, err := watcher.Inspect(s.within(s.patience()), name)
	if err == nil {
		err = watcher.Break(s.within(s.patience()), st)
	}
	if errors.Is(err, errors.ErrUnsupported) { // some services cannot take a lock from a holder that lives
		for _, l := range []*locker.Lease{l, other} {
			if err := l.Renew(s.within(s.patience())); err != nil {
				s.broken(fmt.Sprintf("after a Break that was refused, Renew failed: %v", err),
					"Break is refused after it has happened")
			}
			s.unlock(l)
		}
		s.unlock(<-next)
		return
	}
	switch {
	case err != nil:
		s.broken(fmt.Sprintf("Break of a held name failed: %v", err),
			"the owner is compared, or the waiters are in the way")
	case !st.Held:
		s.broken(fmt.Sprintf("of a held name, Inspect says %+v", st), "the State is that of another name")
	case st.Label != "" && st.Label != "broken é", st.Token != 0 && st.Token != token:
		s.broken(fmt.Sprintf("Break of the lock of %q with token %d returned %+v", "broken é", token, st),
			"the State is not the holder's")
	}
	got := <-next
	if got == nil {
		s.FailNow()
	}
	if err := watcher.Break(s.within(s.patience()), st); err != nil || got.Renew(s.within(s.patience())) != nil {
		s.broken(fmt.Sprintf("a second Break of a holder that is gone returned %v, and the next one's lease is lost", err),
			"a copy of Break breaks whoever holds the name by then")
	}
	if !s.eventually(s.soon, func() bool {
		return l.Err() != nil || errors.Is(l.Renew(s.within(s.patience())), locker.ErrLost)
	}) {
		s.broken("after its lock was broken and granted to another, the holder's Renew succeeds",
			"Break leaves what Renew looks for")
	}
	for what, l := range map[string]*locker.Lease{"the next holder of the name": got,
		"the holder of another name": other} {
		if err := l.Renew(s.within(s.patience())); err != nil {
			s.broken(fmt.Sprintf("after a Break, Renew of %s failed: %v", what, err),
				"Break removes more than the holder of its name")
		}
		s.unlock(l)
	}
}
