package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
)

// The numbers of checkMany. Services tell 1,000 keys at a time, and clients send some hundreds of requests at once.
const (
	crowd   = 1100            // names that one client holds
	blocked = 300             // callers of another client wait for the first of them, and one more for the next
	lineAt  = crowd / 2       // this one has the line, in the middle of what is listed
	lined   = 300             // stand in it, in the queue of the service
	places  = 16              // of a queue are told
	abreast = 128             // calls are made at the same time
	fewest  = 1000            // sharers have room, of up to MaxSharers
	leaving = 100             // of them leave, and as many come
	coming  = 4 * time.Second // is the time in which all come, on a service that is quick enough
)

// What Harness.Unproven calls the check, and the part with sharers.
const (
	many        = "many"
	manySharers = "many-sharers"
)

func checkMany(s *trial) {
	// A thousand leases that are renewed every few seconds would be most of what the service does.
	s.long = min(20*s.long, cmp.Or(s.g.MaxTTL, 24*time.Hour))
	s.holdMany()
	if s.g.Shared != locker.SharingNone && s.h.Unproven[manySharers] == "" {
		s.shareMany()
	}
}

// not reports what is not so.
func (s *trial) not(format string, args ...any) {
	s.Helper()
	s.report(fmt.Sprintf(format, args...), "what is one's own is found by a number that is too small, or told by one of "+
		"several pages; or those that wait use up what others need")
}

// each makes n calls, and ends the check if something is not so.
func (s *trial) each(n int, what string, call func(ctx context.Context, i int) error) {
	s.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range abreast {
		all.Go(s.caught(func() {
			for i := int(next.Add(1)) - 1; i < n && s.told.Load() == 0; i = int(next.Add(1)) - 1 {
				ctx, cancel := context.WithTimeout(s.Context(), s.patience())
				if err := call(ctx, i); err != nil {
					s.not("%s, number %d of %d: %v", what, i, n, err)
				}
				cancel()
			}
		}))
	}
	if all.Wait(); s.told.Load() > 0 {
		s.FailNow()
	}
}

// holdMany has one client hold many names, for which others wait.
func (s *trial) holdMany() {
	holder, other, ctx := s.client(), s.client(), s.within(3*s.patience())
	leases, left, inside := make([]*locker.Lease, crowd), [crowd]atomic.Bool{}, [crowd]atomic.Int32{}
	name := func(i int) string { return s.name(fmt.Sprintf("many-%04d", i)) }
	began := time.Now()
	s.each(crowd, "TryLock of a free name", func(ctx context.Context, i int) (err error) {
		leases[i], err = holder.TryLock(ctx, name(i), locker.TTL(s.lasts(i)), locker.Label(name(i)))
		return err
	})
	brief := func(i int) string { return s.name(fmt.Sprintf("brief-%04d", i)) }
	s.each(crowd, "Unlock of a name that was had in time", func(ctx context.Context, i int) error {
		hurry, cancel := context.WithTimeout(ctx, time.Duration(i%4)*time.Millisecond)
		defer cancel()
		l, err := holder.TryLock(hurry, brief(i), locker.TTL(s.long))
		if err != nil {
			return nil //nolint:nilerr // most are too late
		}
		return l.Unlock(ctx)
	})
	var waits sync.WaitGroup
	wait := func(i int, get func() (token uint64, unlock func(context.Context) error, err error)) (in chan bool) {
		in = make(chan bool, 1)
		waits.Go(s.caught(func() {
			token, unlock, err := get()
			before, fenced := leases[i].Token()
			if s.told.Load() > 0 {
				return // the check has ended
			}
			if err != nil || !left[i].Load() || inside[i].Add(1) > 1 || fenced && token <= before {
				s.not("name %d of %d was held with token %d, and who waited for it got token %d: %v", i, crowd, before, token, err)
				return
			}
			inside[i].Add(-1)
			if err = unlock(ctx); err != nil {
				s.not("Unlock of name %d of %d by one who waited: %v", i, crowd, err)
			}
			in <- true
		}))
		return in
	}
	var last chan bool
	for i := range blocked + 1 {
		last = wait(i, func() (uint64, func(context.Context) error, error) {
			l, err := other.Lock(ctx, name(i), locker.TTL(s.long))
			if err != nil {
				return 0, nil, err
			}
			token, _ := l.Token()
			return token, l.Unlock, nil
		})
		if i >= blocked-1 {
			s.isWaiting(other, i+1)
		}
	}
	backends := []locker.Backend{s.backend(), s.backend()}
	var queued atomic.Int32
	for n := 0; n < lined && s.g.Queue; n++ {
		req, once := s.request(name(lineAt), s.long), sync.Once{}
		req.Wait, req.Label, req.Queued = true, fmt.Sprintf("%03d", n), func() { once.Do(func() { queued.Add(1) }) }
		wait(lineAt, func() (uint64, func(context.Context) error, error) {
			grant, err := backends[n%2].Acquire(ctx, req)
			if err != nil {
				return 0, nil, err
			}
			return grant.Token, grant.Hold.Release, nil
		})
		if n == places-1 || n == lined-1 {
			s.eventually(s.patience(), func() bool { return int(queued.Load()) == n+1 })
		}
	}
	if !s.eventually(s.patience(), func() bool { return s.listed(holder, leases, began) }) {
		s.not("of %d names, List does not tell how many wait for each", crowd)
	}
	time.Sleep(time.Until(began.Add(4 * time.Second))) // for a renewal to show
	began = time.Now()
	s.each(crowd, "Renew of a lease", func(ctx context.Context, i int) error { return leases[i].Renew(ctx) })
	s.listed(holder, leases, began)
	s.each(crowd, "TryLock of a name whose caller before was in a hurry", func(ctx context.Context, i int) (err error) {
		s.eventually(s.patience(), func() bool {
			var l *locker.Lease
			if l, err = holder.TryLock(ctx, brief(i), locker.TTL(s.long)); err == nil {
				err = l.Unlock(ctx)
			}
			return !errors.Is(err, locker.ErrHeld)
		})
		return err
	})
	unlock := func(ctx context.Context, i int) (err error) {
		if left[i].CompareAndSwap(false, true) {
			err = leases[i].Unlock(ctx)
		}
		return err
	}
	err := unlock(ctx, blocked)
	select {
	case <-last:
	case <-time.After(s.patience()):
		s.not("%d callers wait, and the last does not get its name, whose Unlock returned %v", blocked+1, err)
		s.FailNow()
	}
	s.each(crowd, "Unlock of a lease", unlock)
	waits.Wait()
}

// lasts is the TTL of one of many: half of them have a shorter one.
func (s *trial) lasts(i int) time.Duration { return s.long >> (i % 2) }

// listed reports whether List tells of all that wait. Its other answers have to be so at once, and each lease lasts
// for its TTL since.
func (s *trial) listed(c *locker.Client, leases []*locker.Lease, since time.Time) (all bool) {
	told := map[string]locker.State{}
	for st, err := range c.List(s.within(s.patience()), s.name("many-")) {
		if errors.Is(err, errors.ErrUnsupported) {
			return true
		}
		if _, twice := told[st.Name]; twice || err != nil {
			s.not("List of %d names told of %q twice, or failed: %v", crowd, st.Name, err)
		}
		told[st.Name] = st
	}
	all = true
	for i, l := range leases {
		st, waiters := told[l.Name()], 0
		if i <= blocked {
			waiters = 1
		} else if i == lineAt && s.g.Queue {
			waiters = lined
		}
		token, _ := l.Token()
		tooMany := len(st.Waiting) > places || i == lineAt && s.g.Order == locker.OrderFIFO &&
			slices.ContainsFunc(st.Waiting, func(label string) bool { return label >= fmt.Sprintf("%03d", places) })
		brief := st.Remaining > 0 && st.Remaining < s.lasts(i)-time.Since(since)-2*time.Second
		if !st.Held || brief || st.Label != "" && st.Label != l.Name() || st.Token != 0 && st.Token != token || tooMany {
			s.not("List of %d names told of %q, with token %d, for which %d wait: %+v", crowd, l.Name(), token, waiters, st)
		}
		all = all && (st.Waiters < 0 || st.Waiters == waiters)
	}
	if s.told.Load() > 0 {
		s.FailNow()
	}
	return all
}

// shareMany has as many share a name as may.
func (s *trial) shareMany() {
	type sharer struct {
		locker.Hold
		told atomic.Bool
	}
	name, operator, backends := s.name("shared"), s.client(), []locker.Backend{s.backend(), s.backend()}
	if s.g.Exclusion == locker.ExclusionKernel {
		backends[1] = backends[0] // each counts its own, since a kernel does not
	}
	sharers, began, full := make([]*sharer, locker.MaxSharers), time.Now(), atomic.Bool{}
	acquire := func(ctx context.Context, i int) (one *sharer, err error) {
		one = &sharer{}
		req := s.request(name, s.long/2)
		if i == abreast/2 {
			req.TTL = s.long // it comes with others, and the name lasts as long as it
		}
		req.Shared, req.Wait, req.Lost, req.Queued = true, i%4 > 1, func() { one.told.Store(true) }, func() {}
		s.eventually(s.patience(), func() bool {
			var grant locker.Grant
			grant, err = backends[i%2].Acquire(ctx, req)
			one.Hold = grant.Hold
			return !errors.Is(err, locker.ErrUnavailable) // as where others change the same record, again and again
		})
		return one, err
	}
	come := func(ctx context.Context, i int) (err error) {
		sharers[i], err = acquire(ctx, i)
		return err
	}
	s.each(len(sharers), "Acquire of a sharer", func(ctx context.Context, i int) error {
		if full.Load() || time.Since(began) > coming {
			return nil
		}
		err := come(ctx, i)
		if i >= fewest && errors.Is(err, locker.ErrRefused) {
			full.Store(true)
			sharers[i], err = nil, nil
		}
		return err
	})
	sharers = slices.DeleteFunc(sharers, func(one *sharer) bool { return one == nil })
	n := len(sharers)
	s.Logf("%d sharers came in %v", n, time.Since(began))
	beyond := func(ctx context.Context, i int) error {
		if _, err := acquire(ctx, i); !errors.Is(err, locker.ErrRefused) || errors.Is(err, locker.ErrHeld) {
			return fmt.Errorf("it returned %v", err) //nolint:errorlint // it may be nil
		}
		return nil
	}
	if full.Load() || n == locker.MaxSharers {
		s.each(4, fmt.Sprintf("Acquire of a sharer beyond %d", n), beyond)
		s.each(leaving, "Release of a sharer", func(ctx context.Context, i int) error { return sharers[i].Release(ctx) })
		s.each(leaving, "Acquire of a sharer after another has left", come)
		s.each(4, fmt.Sprintf("Acquire of a sharer beyond %d", n), beyond)
	}
	var st locker.State
	var err error
	s.eventually(s.soon, func() bool {
		st, err = operator.Inspect(s.within(s.patience()), name)
		return err != nil || st.Sharers == n
	})
	brief := st.Remaining > 0 && st.Remaining < s.long/2
	if err == nil && (st.Sharers != n || brief || len(st.Sharing) > places) {
		s.not("%d share a name, and Inspect told of %d for %v, with labels %q", n, st.Sharers, st.Remaining, st.Sharing)
	}
	if err == nil {
		err = operator.Break(s.within(s.patience()), st)
	}
	told := func() (k int) {
		for _, one := range sharers {
			if one.told.Load() {
				k++
			}
		}
		return k
	}
	if errors.Is(err, errors.ErrUnsupported) {
		s.each(n, "Release of a sharer", func(ctx context.Context, i int) error { return sharers[i].Release(ctx) })
	} else if err != nil {
		s.not("Break of %d sharers: %v", n, err)
	} else {
		lost := func(ctx context.Context, i int) (err error) {
			if !s.eventually(s.soon, func() bool {
				if one := sharers[i]; !one.told.Load() && !errors.Is(err, locker.ErrLost) {
					_, err = one.Renew(ctx)
				}
				return sharers[i].told.Load() || errors.Is(err, locker.ErrLost)
			}) {
				return fmt.Errorf("it returned %v, and Lost was not called", err) //nolint:errorlint // it may be nil
			}
			return nil
		}
		// A service that tells one of them unasked tells all.
		s.eventually(settle, func() bool { return told() > 0 })
		if !s.eventually(s.patience(), func() bool { k := told(); return k == 0 || k == n }) {
			s.not("Break has removed %d sharers, and Lost was called for %d", n, told())
		}
		s.each(n, "Renew of a sharer whom Break has removed", lost)
	}
	s.unlock(s.try(operator, name, locker.TTL(s.long)))
}
