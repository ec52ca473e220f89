package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/golockers/locker"
)

func inspectChecks() []check {
	return []check{
		{
			Name: "inspect",
			Promise: "Inspect tells who holds a name and for how long, and changes nothing; a backend that " +
				"cannot tell says ErrUnsupported.",
			run: checkInspect,
		},
	}
}

func checkInspect(s *trial) {
	b := s.backend()
	c := s.clientOf(b, func(o *locker.Options) { o.Label = "inspected é" })
	watcher := s.client()
	name := s.name("inspected")
	ctx := s.within(s.patience())
	if _, ok := b.(locker.Operator); !ok {
		if _, err := c.Inspect(ctx, name); !errors.Is(err, errors.ErrUnsupported) {
			s.broken(fmt.Sprintf("Inspect of a backend without Operator returned %v", err),
				"an engine that makes up an answer")
		}
		// A Client for which nothing was said has to say the same.
		if _, ok := any(b).(interface {
			Inspect(context.Context, string) (locker.State, error)
		}); ok {
			s.broken("Inspect is there, and Operator is not", "a method of another type")
		}
		return
	}
	look := func(who *locker.Client) locker.State {
		s.Helper()
		st, err := who.Inspect(ctx, name)
		if err != nil {
			s.broken(fmt.Sprintf("Inspect failed: %v", err),
				"a name that is encoded in another way than in Acquire, or a free name taken for an error")
		}
		return st
	}
	if st := look(watcher); st.Held || st.Label != "" || st.Remaining != 0 || st.Token != 0 || st.Waiters > 0 {
		s.broken(fmt.Sprintf("of a name that nobody had, Inspect says %+v", st),
			"the zero State is what is known of it")
	}
	s.nothingLeft(name)
	l := s.try(c, name, locker.TTL(s.long))
	life := s.life(s.long)
	for who, st := range map[string]locker.State{"its holder's client": look(c),
		"another client": look(watcher)} {
		token, _ := l.Token()
		switch {
		case !st.Held:
			s.broken(fmt.Sprintf("of a held name, Inspect of %s says %+v", who, st),
				"a name that is encoded in another way than in Acquire")
		case st.Label != "" && st.Label != "inspected é":
			s.broken(fmt.Sprintf("the label is %q instead of %q", st.Label, "inspected é"),
				"the label is not stored as it is")
		case st.Remaining < 0 || st.Remaining > life:
			s.broken(fmt.Sprintf("of a lease of %v, Inspect of %s says that %v remain",
				life, who, st.Remaining), "another unit of time")
		case st.Token != 0 && st.Token != token:
			s.broken(fmt.Sprintf("the holder's token is %d, Inspect of %s says %d", token, who, st.Token),
				"the counter is read, and not the holder's token")
		case st.Waiters < -1 || st.Waiters > 0:
			s.broken(fmt.Sprintf("nobody waits, and Inspect of %s says %d", who, st.Waiters),
				"the holder is counted, or -1 is meant")
		}
	}
	counts := look(watcher).Waiters >= 0
	if counts {
		waiter := s.clientOf(s.backend(), func(o *locker.Options) { o.Label = "waits é" })
		waiting, stop := context.WithCancel(s.Context())
		defer stop()
		s.spawn(func() {
			if l, err := waiter.Lock(waiting, name, locker.TTL(s.long)); err == nil {
				_ = l.Unlock(s.Context())
			}
		})
		if !s.eventually(s.soon, func() bool { return look(watcher).Waiters == 1 }) {
			s.broken(fmt.Sprintf("one waits, and Inspect says %d", look(watcher).Waiters),
				"who waits is not counted: -1 says so")
		}
		if st := look(watcher); len(st.Waiting) > 0 &&
			(len(st.Waiting) > 1 || !strings.HasPrefix(st.Waiting[0], "waits é")) {
			s.broken(fmt.Sprintf("one with the label %q waits, and Inspect says %q", "waits é", st.Waiting),
				"the holder is among those who wait, or their labels are not stored as they are")
		}
		stop()
		if !s.eventually(s.soon, func() bool { return look(watcher).Waiters == 0 }) {
			s.broken(fmt.Sprintf("the waiter has left, and Inspect says %d", look(watcher).Waiters),
				"a waiter that gives up leaves its place behind")
		}
	}
	if err := l.Err(); err != nil {
		s.broken(fmt.Sprintf("the lease ended when it was looked at: %v", err), "Inspect changes what it looks at")
	}
	s.unlock(l)
	if st := look(watcher); st.Held {
		s.broken(fmt.Sprintf("of a name that was unlocked, Inspect says %+v", st),
			"what Inspect reads is not what Release removes")
	}
	s.unlock(s.try(watcher, name))
	s.nothingLeft(name)
}
