package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
)

func claimChecks() []Check {
	return []Check{
		{
			Name:    "claims",
			Promise: "Guarantees are complete, in range, the same for every client and at every time, and asked without I/O.",
			run:     checkClaims,
		},
		{
			Name:    "inspect",
			Promise: "Inspect tells who holds a name and for how long, and changes nothing; a backend that cannot tell says ErrUnsupported.",
			run:     checkInspect,
		},
		{
			Name:    "notify",
			Promise: "A release after Notify has returned is told, and one that a broken connection hid is made up for (R14).",
			unasked: func(s subject) string {
				if !s.notifies {
					return "the backend is no Notifier"
				}
				return ""
			},
			run: checkNotify,
		},
		{
			Name:    "url",
			Promise: "A client that was opened by URL meets those that were made by hand, and refuses parameters that it does not know.",
			unasked: func(s subject) string {
				if s.URL == "" {
					return "the harness has no URL"
				}
				return ""
			},
			run: checkURL,
		},
	}
}

func checkClaims(s *trial) {
	b := s.backend()
	g := b.Guarantees()
	bad := func(seen, cause string) { s.Helper(); s.report(seen, cause) }
	if g.Backend == "" || strings.ContainsAny(g.Backend, " \n") {
		bad(fmt.Sprintf("Backend is %q", g.Backend), "give the name of the service in a word: it stands in errors")
	}
	if g.Scope == locker.ScopeNone {
		bad("Scope is none", "a lock that excludes nobody")
	}
	if g.Exclusion == locker.ExclusionNone {
		bad("Exclusion is none", "say what it rests on that two do not hold at once")
	}
	if strings.TrimSpace(g.RestsOn) == "" {
		bad("RestsOn is empty", "no claim is always true: say what has to hold for it")
	}
	for _, f := range []fmt.Stringer{g.Scope, g.Exclusion, g.Fencing, g.Order, g.DeadHolder} {
		if strings.HasPrefix(f.String(), "unknown") {
			bad(fmt.Sprintf("a field of type %T is out of range: %v", f, f), "use the constants")
		}
	}
	if g.DeadHolderSlack < 0 || g.ServerCrashes < 0 || g.MinTTL < 0 || g.MaxTTL < 0 {
		bad(fmt.Sprintf("a field is negative: %+v", g), "nothing here can be")
	}
	if g.MaxTTL != 0 && g.MaxTTL < max(g.MinTTL, engineMin) {
		bad(fmt.Sprintf("MaxTTL is %v and MinTTL %v", g.MaxTTL, g.MinTTL), "no TTL is possible")
	}
	if g.MinTTL > time.Minute {
		bad(fmt.Sprintf("MinTTL is %v", g.MinTTL), "the lock of a dead holder would be kept for longer than anybody wants to wait")
	}
	if other := s.backend().Guarantees(); other != g {
		bad(fmt.Sprintf("one client claims %+v, another %+v", g, other), "Guarantees depend on the client's state")
	}
	lease := s.try(s.clientOf(b), s.name("claims"), locker.TTL(s.ttl))
	if now := b.Guarantees(); now != g {
		bad(fmt.Sprintf("claims changed from %+v to %+v", g, now), "Guarantees depend on what is held")
	}
	s.unlock(lease)
	// What is not claimed is refused to those who require it.
	c := s.clientOf(b)
	more := g
	more.ServerCrashes++
	if err := locker.Require(c, more); !errors.Is(err, errors.ErrUnsupported) {
		bad(fmt.Sprintf("Require of more than is claimed returned %v", err), "an engine that does not compare")
	}
	if err := locker.Require(c, g); err != nil {
		bad(fmt.Sprintf("Require of just what is claimed failed: %v", err), "a field that is out of range")
	}
	if s.h.Cut == nil {
		return
	}
	cut, fault := s.cut()
	both(fault, Drop)
	began := time.Now()
	if now := cut.Guarantees(); now != g || time.Since(began) > s.soon {
		bad(fmt.Sprintf("without a connection, Guarantees took %v and returned %+v", time.Since(began), now), "Guarantees asks the service")
	}
}

func checkInspect(s *trial) {
	b := s.backend()
	c := s.clientOf(b, func(o *locker.Options) { o.Label = "inspected é" })
	watcher := s.client()
	name := s.name("inspected")
	ctx := s.within(s.patience())
	if _, ok := b.(locker.Inspector); !ok {
		if _, err := c.Inspect(ctx, name); !errors.Is(err, errors.ErrUnsupported) {
			s.broken(fmt.Sprintf("Inspect of a backend without Inspector returned %v", err), "an engine that makes up an answer")
		}
		// A Client for which nothing was said has to say the same.
		if _, ok := any(b).(interface {
			Inspect(context.Context, string) (locker.State, error)
		}); ok {
			s.broken("Inspect is there, and Inspector is not", "a method of another type")
		}
		return
	}
	look := func(who *locker.Client) locker.State {
		s.Helper()
		st, err := who.Inspect(ctx, name)
		if err != nil {
			s.broken(fmt.Sprintf("Inspect failed: %v", err), "a name that is encoded in another way than in Acquire, or a free name taken for an error")
		}
		return st
	}
	if st := look(watcher); st.Held || st.Label != "" || st.Remaining != 0 || st.Token != 0 || st.Waiters > 0 {
		s.broken(fmt.Sprintf("of a name that nobody had, Inspect says %+v", st), "the zero State is what is known of it")
	}
	s.nothingLeft(name)
	l := s.try(c, name, locker.TTL(s.long))
	life := s.life(s.long)
	for who, st := range map[string]locker.State{"its holder's client": look(c), "another client": look(watcher)} {
		token, _ := l.Token()
		switch {
		case !st.Held:
			s.broken(fmt.Sprintf("of a held name, Inspect of %s says %+v", who, st), "a name that is encoded in another way than in Acquire")
		case st.Label != "" && st.Label != "inspected é":
			s.broken(fmt.Sprintf("the label is %q instead of %q", st.Label, "inspected é"), "the label is not stored as it is")
		case st.Remaining < 0 || st.Remaining > life:
			s.broken(fmt.Sprintf("of a lease of %v, Inspect of %s says that %v remain", life, who, st.Remaining), "another unit of time")
		case st.Token != 0 && st.Token != token:
			s.broken(fmt.Sprintf("the holder's token is %d, Inspect of %s says %d", token, who, st.Token), "the counter is read, and not the holder's token")
		case st.Waiters < -1 || st.Waiters > 0:
			s.broken(fmt.Sprintf("nobody waits, and Inspect of %s says %d", who, st.Waiters), "the holder is counted, or -1 is meant")
		}
	}
	counts := look(watcher).Waiters >= 0
	if counts {
		waiter := s.client()
		waiting, stop := context.WithCancel(s.Context())
		defer stop()
		s.spawn(func() {
			if l, err := waiter.Lock(waiting, name, locker.TTL(s.long)); err == nil {
				_ = l.Unlock(s.Context())
			}
		})
		if !s.eventually(s.soon, func() bool { return look(watcher).Waiters == 1 }) {
			s.broken(fmt.Sprintf("one waits, and Inspect says %d", look(watcher).Waiters), "who waits is not counted: -1 says so")
		}
		stop()
		if !s.eventually(s.soon, func() bool { return look(watcher).Waiters == 0 }) {
			s.broken(fmt.Sprintf("the waiter has left, and Inspect says %d", look(watcher).Waiters), "a waiter that gives up leaves its place behind")
		}
	}
	if err := l.Err(); err != nil {
		s.broken(fmt.Sprintf("the lease ended when it was looked at: %v", err), "Inspect changes what it looks at")
	}
	s.unlock(l)
	if st := look(watcher); st.Held {
		s.broken(fmt.Sprintf("of a name that was unlocked, Inspect says %+v", st), "what Inspect reads is not what Release removes")
	}
	s.unlock(s.try(watcher, name))
	s.nothingLeft(name)
}

func checkNotify(s *trial) {
	b := s.backend()
	other := s.backend()
	for i := range 10 {
		name := s.name(fmt.Sprintf("notify-%d", i))
		grant := s.acquire(other, s.request(name, s.long))
		told, stop := s.listen(b, name)
		s.refusedWaiting(b, name)
		if err := grant.Hold.Release(s.within(s.patience())); err != nil {
			s.broken(fmt.Sprintf("Release of a hold failed: %v", err), "Release does not find its own key")
		}
		if !s.eventually(s.prompt(), told) {
			s.broken(fmt.Sprintf("%v after a release, wake was not called", s.prompt()), "Notify returns before the service has confirmed it, or the release tells another channel")
		}
		stop()
	}
	if s.h.Cut == nil {
		return
	}
	b, fault := s.cut()
	name := s.name("notify-cut")
	grant := s.acquire(other, s.request(name, s.long))
	told, stop := s.listen(b, name)
	defer stop()
	s.refusedWaiting(b, name)
	both(fault, Reset)
	if err := grant.Hold.Release(s.within(s.patience())); err != nil {
		s.broken(fmt.Sprintf("Release of a hold failed: %v", err), "Release does not find its own key")
	}
	time.Sleep(settle)
	both(fault, Pass)
	if !s.eventually(s.patience(), told) {
		s.broken("a release that happened while the connection was broken was not made up for", "when it subscribes again, the backend does not wake those who may have missed something")
	}
}

// listen returns whether wake was called since the call of listen.
func (s *trial) listen(b locker.Backend, name string) (told func() bool, stop func()) {
	s.Helper()
	var wakes atomic.Int32
	stop, err := b.(locker.Notifier).Notify(s.within(s.patience()), name, func() { wakes.Add(1) })
	if err != nil || stop == nil {
		s.broken(fmt.Sprintf("Notify failed: %v", err), "the service cannot be reached, or refuses to tell")
	}
	before := wakes.Load()
	return func() bool { return wakes.Load() > before }, stop
}

// refusedWaiting asks for a name that is held, as who waits for it does.
func (s *trial) refusedWaiting(b locker.Backend, name string) {
	s.Helper()
	req := s.request(name, s.long)
	req.Wait = true
	if _, err := b.Acquire(s.within(s.patience()), req); !errors.Is(err, locker.ErrHeld) {
		s.broken(fmt.Sprintf("Acquire of a name that is held, with Wait set, returned %v", err), "a backend with a Notifier does not wait itself: it returns ErrHeld at once")
	}
}

func checkURL(s *trial) {
	ctx := s.within(s.patience())
	c, err := s.h.open(ctx, s.h.URL)
	if err != nil {
		s.broken(fmt.Sprintf("Open failed: %v", err), "the URL of the harness is not that of the service")
	}
	s.Cleanup(func() { _ = c.Close() })
	name := s.name("url")
	other := s.client()
	l := s.try(other, name, locker.TTL(s.long))
	if _, err := c.TryLock(ctx, name, locker.TTL(s.ttl)); !errors.Is(err, locker.ErrHeld) {
		s.broken(fmt.Sprintf("a client made by hand holds a name, and TryLock of one opened by URL returned %v", err), "it is opened for another server, database or directory, or with another prefix of its own")
	}
	s.unlock(l)
	l = s.try(c, name, locker.TTL(s.long))
	if err := c.Close(); err != nil {
		s.broken(fmt.Sprintf("Close failed: %v", err), "the backend cannot be closed")
	}
	s.unlock(s.freeWithin(s.soon, other, name, "Close of the Client did not release its lease"))
	sep := "?"
	if strings.Contains(s.h.URL, "?") {
		sep = "&"
	}
	wrong, err := s.h.open(ctx, s.h.URL+sep+"no_such_parameter=1")
	if err == nil {
		_ = wrong.Close()
		s.broken("a parameter that does not exist was accepted", "an engine that does not check")
	}
	if !errors.Is(err, locker.ErrURL) || !strings.Contains(err.Error(), "no_such_parameter") {
		s.broken(fmt.Sprintf("a parameter that does not exist was refused with %v", err), "the URL is used before u.Check has been called")
	}
	if g, want := c.Guarantees().Backend, s.g.Backend; g != want {
		s.broken(fmt.Sprintf("by URL the backend is %q, by hand %q", g, want), "it is another backend")
	}
}
