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
	"github.com/golockers/locker/driver"
)

// size says how many of each checkMany has. Services return 1,000 keys at a time, and clients send some
// hundreds of requests at once.
type size struct {
	crowd   int           // names that one client holds
	blocked int           // callers of another client that wait for the first of these names, plus one for the next
	lined   int           // waiters for one name, in the service's queue
	sharers int           // sharers to add, if there is time
	fewest  int           // sharers that must have room
	leaving int           // sharers that leave and are replaced
	coming  time.Duration // the time in which all sharers come, if the service is fast enough
	lasting time.Duration // how long leases last before their renewal, so that Remaining shows it
}

var (
	thousand = size{crowd: 1100, blocked: 300, lined: 300, sharers: locker.MaxSharers, fewest: 1000, leaving: 100,
		coming: 4 * time.Second, lasting: 5 * time.Second}
	hundreds = size{crowd: 220, blocked: 60, lined: 60, sharers: 220, fewest: 200, leaving: 20, // with go test -short
		coming: time.Second, lasting: 2 * time.Second}
)

const (
	places  = 16  // of a queue that are reported
	abreast = 128 // concurrent calls
)

// The names of the check, and of its part with sharers, in Harness.Unproven.
const (
	many        = "many"
	manySharers = "many-sharers"
)

func checkMany(s *trial) {
	// Renewing a thousand leases every few seconds would be most of the service's work.
	s.long = min(10*s.long, cmp.Or(s.g.MaxTTL, 24*time.Hour))
	s.holdMany()
	if s.h.Cut != nil && s.g.DeadHolder != locker.RecoveryNone && s.g.Scope != locker.ScopeProcess {
		s.dieWithMany()
	}
	if s.g.Shared != locker.SharingNone && s.h.Unproven[manySharers] == "" {
		s.shareMany()
	}
}

// shorter is a TTL other than long, if one is long enough for the check.
func (s *trial) shorter() time.Duration {
	if half := s.long / 2; half > max(s.g.MinTTL, time.Minute) {
		return half
	}
	return s.long
}

// not reports a failure.
func (s *trial) not(format string, args ...any) {
	s.Helper()
	s.report(fmt.Sprintf(format, args...), "a counter or index that is too small, an answer from only one of "+
		"several pages, or waiters that use up what others need")
}

// each makes n calls, and ends the check if one fails.
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

// crowdHeld is the part in which one client holds many names, and others wait for some.
type crowdHeld struct {
	*trial
	holder, other *locker.Client
	leases        []*locker.Lease
	left          []atomic.Bool
	inside        []atomic.Int32 // how many of the waiters have the name
	waiting       context.Context
	waits         sync.WaitGroup
	queue         bool // in the service
}

func (s *trial) holdMany() {
	m := &crowdHeld{trial: s, holder: s.client(), other: s.client(), leases: make([]*locker.Lease, s.crowd),
		left: make([]atomic.Bool, s.crowd), inside: make([]atomic.Int32, s.crowd)}
	began := time.Now()
	waiting, cancel := context.WithCancel(s.Context())
	s.Cleanup(cancel)
	m.waiting = waiting
	s.each(s.crowd, "TryLock of a free name", func(ctx context.Context, i int) (err error) {
		m.leases[i], err = m.holder.TryLock(ctx, m.name(i), locker.TTL(m.ttl(i)), locker.Label(m.name(i)))
		return err
	})
	m.hurry()
	last := m.block()
	if m.queue = driver.HasQueue(m.backend()); m.queue {
		m.line()
	}
	if !s.eventually(s.patience(), m.listed) {
		s.not("of %d names, List does not report how many wait for each", s.crowd)
	}
	time.Sleep(time.Until(began.Add(s.lasting)))
	s.each(s.crowd, "Renew of a lease", func(ctx context.Context, i int) error { return m.leases[i].Renew(ctx) })
	m.listed()
	err := m.leave(s.within(s.patience()), s.blocked)
	select {
	case <-last:
	case <-time.After(s.patience()):
		s.not("%d callers wait, and the last does not get its name, whose Unlock returned %v", s.blocked+1, err)
		s.FailNow()
	}
	s.each(s.crowd, "Unlock of a lease", m.leave)
	time.AfterFunc(3*s.patience(), cancel)
	m.waits.Wait()
}

// lineAt is the name with the queue.
func (m *crowdHeld) lineAt() int { return m.crowd / 2 }

func (m *crowdHeld) name(i int) string { return m.trial.name(fmt.Sprintf("many-%04d", i)) }

// ttl is long for even numbers, and shorter for odd ones.
func (m *crowdHeld) ttl(i int) time.Duration {
	if i%2 > 0 {
		return m.shorter()
	}
	return m.long
}

// hurry asks for other names, with contexts that end while the service answers. Nothing of that may be
// left.
func (m *crowdHeld) hurry() {
	asked := make([]atomic.Bool, m.crowd)
	try := func(lock, unlock context.Context, i int) error {
		l, err := m.holder.TryLock(lock, m.trial.name(fmt.Sprintf("brief-%04d", i)), locker.TTL(m.long))
		if err == nil {
			err = l.Unlock(unlock)
		}
		return err
	}
	began := time.Now()
	m.each(m.crowd, "", func(ctx context.Context, i int) error {
		if time.Since(began) < m.coming {
			brief, cancel := context.WithTimeout(ctx, 50*time.Microsecond<<(i%7)) // to 3.2 ms
			defer cancel()
			asked[i].Store(true)
			_ = try(brief, ctx, i)
		}
		return nil
	})
	m.each(m.crowd, "TryLock of a name after a caller in a hurry", func(_ context.Context, i int) (err error) {
		if asked[i].Load() {
			m.eventually(2*m.patience(), func() bool {
				ctx, cancel := context.WithTimeout(m.Context(), m.patience())
				defer cancel()
				err = try(ctx, ctx, i)
				return !errors.Is(err, locker.ErrHeld)
			})
		}
		return err
	})
}

// wait makes a caller wait for a name, and reports when it has had it.
func (m *crowdHeld) wait(i int, get func(ctx context.Context) (uint64, func(context.Context) error, error)) (had chan bool) {
	had = make(chan bool)
	m.waits.Go(m.caught(func() {
		defer close(had)
		token, unlock, err := get(m.waiting)
		before, fenced := m.leases[i].Token()
		if m.told.Load() > 0 {
			return // the check has ended
		}
		if err != nil || !m.left[i].Load() || m.inside[i].Add(1) > 1 || fenced && token <= before {
			m.not("name %d of %d was held with token %d, and its waiter got token %d: %v", i, m.crowd, before, token, err)
			return
		}
		m.inside[i].Add(-1)
		if err = unlock(m.waiting); err != nil {
			m.not("Unlock of name %d of %d by a waiter: %v", i, m.crowd, err)
		}
	}))
	return had
}

// block makes callers of the other client wait, each for another name.
func (m *crowdHeld) block() (last chan bool) {
	for i := range m.blocked + 1 {
		last = m.wait(i, func(ctx context.Context) (uint64, func(context.Context) error, error) {
			l, err := m.other.Lock(ctx, m.name(i), locker.TTL(m.long))
			if err != nil {
				return 0, nil, err
			}
			token, _ := l.Token()
			return token, l.Unlock, nil
		})
		if i >= m.blocked-1 {
			m.isWaiting(m.other, i+1)
		}
	}
	return last
}

// line makes clients wait for one name, in the service's queue.
func (m *crowdHeld) line() {
	backends := []driver.Backend{m.backend(), m.backend()}
	var queued atomic.Int32
	for n := range m.lined {
		req, once := m.request(m.name(m.lineAt()), m.long), sync.Once{}
		req.Wait, req.Label, req.Queued = true, fmt.Sprintf("%03d", n), func() { once.Do(func() { queued.Add(1) }) }
		m.wait(m.lineAt(), func(ctx context.Context) (uint64, func(context.Context) error, error) {
			grant, err := acquire(ctx, backends[n%2], req)
			if err != nil {
				return 0, nil, err
			}
			return grant.Token, func(ctx context.Context) error { return grant.Hold.Release(ctx, 0) }, nil
		})
		if n == places-1 || n == m.lined-1 {
			m.eventually(m.patience(), func() bool { return int(queued.Load()) == n+1 })
		}
	}
}

func (m *crowdHeld) leave(ctx context.Context, i int) (err error) {
	if m.left[i].CompareAndSwap(false, true) {
		err = m.leases[i].Unlock(ctx)
	}
	return err
}

// listed reports whether List shows all waiters. Everything else in its answer must be right at once.
func (m *crowdHeld) listed() (all bool) {
	told, until := map[string]locker.State{}, make([]time.Time, len(m.leases))
	for i, l := range m.leases {
		until[i] = l.Until()
	}
	for st, err := range m.holder.List(m.within(3*m.patience()), m.trial.name("many-")) {
		if errors.Is(err, errors.ErrUnsupported) {
			return true
		}
		if _, twice := told[st.Name]; twice || err != nil {
			m.not("List of %d names reported %q twice, or failed: %v", m.crowd, st.Name, err)
		}
		told[st.Name] = st
	}
	all = true
	for i, l := range m.leases {
		st, waiters := told[l.Name()], 0
		if i <= m.blocked {
			waiters = 1
		} else if i == m.lineAt() && m.queue {
			waiters = m.lined
		}
		token, _ := l.Token()
		tooMany := len(st.Waiting) > places || i == m.lineAt() && m.g.Order == locker.OrderFIFO &&
			slices.ContainsFunc(st.Waiting, func(label string) bool { return label >= fmt.Sprintf("%03d", places) })
		brief := st.Remaining > 0 && st.Remaining < time.Until(until[i])-time.Second/2
		if !st.Held || brief || st.Label != "" && st.Label != l.Name() || st.Token != 0 && st.Token != token || tooMany {
			m.not("List of %d names reported %q, which has token %d and %d waiters, as %+v", m.crowd, l.Name(), token, waiters, st)
		}
		all = all && (st.Waiters < 0 || st.Waiters == waiters)
	}
	if m.told.Load() > 0 {
		m.FailNow()
	}
	return all
}

// dieWithMany cuts off a client that holds hundreds of long names.
func (s *trial) dieWithMany() {
	b, line := s.cut()
	other, ttl, began := s.client(), min(max(4*time.Second, s.g.MinTTL), cmp.Or(s.g.MaxTTL, time.Hour)), time.Now()
	name := func(i int) string { return s.name(fmt.Sprintf("dead-%04d-%0*d", i, 400, i)) }
	life := make([]atomic.Int64, s.crowd) // 0: it was free, or is again
	s.each(s.crowd, "Acquire of a free name", func(ctx context.Context, i int) error {
		if time.Since(began) > ttl/2 {
			return nil
		}
		grant, err := acquire(ctx, b, s.request(name(i), ttl))
		if err == nil {
			life[i].Store(int64(max(grant.Validity.TTL, ttl)))
		}
		return err
	})
	both(line, Drop)
	longest, died, n := ttl, time.Now(), 0
	for i := range life {
		if d := time.Duration(life[i].Load()); d > 0 {
			longest, n = max(longest, d), n+1
		}
	}
	if s.Logf("a client died that held %d names", n); n == 0 {
		s.not("of %d names, none was granted within %v", s.crowd, ttl/2)
	}
	for rest := n; rest > 0; {
		lasts := time.Since(died)
		s.each(s.crowd, "TryLock of a dead client's name", func(ctx context.Context, i int) error {
			if life[i].Load() == 0 {
				return nil
			}
			l, err := s.tryLock(other, name(i), locker.TTL(s.long))
			if err == nil {
				life[i].Store(0)
				return l.Unlock(ctx)
			} else if errors.Is(err, locker.ErrHeld) {
				return nil
			}
			return err
		})
		rest = 0
		for i := range life {
			if life[i].Load() > 0 {
				rest++
			}
		}
		if rest > 0 && lasts > 2*longest+s.g.DeadHolderSlack+s.patience() { // it may have to be watched
			s.not("a client that held %d names died, and %d of them were not free %v later", n, rest, lasts)
			return
		}
		time.Sleep(ttl / 4)
	}
}

// shareMany makes as many sharers hold a name as possible.
func (s *trial) shareMany() {
	type sharer struct {
		driver.Hold
		told atomic.Bool
	}
	name, operator, backends := s.name("shared"), s.client(), []driver.Backend{s.backend(), s.backend()}
	if s.g.Exclusion == locker.ExclusionKernel {
		backends[1] = backends[0] // each counts its own, because a kernel does not
	}
	sharers, began, full := make([]*sharer, s.sharers), time.Now(), atomic.Bool{}
	acquire := func(ctx context.Context, i int) (one *sharer, err error) {
		s.eventually(s.patience()/2, func() bool {
			one = &sharer{}
			req := s.request(name, s.shorter())
			if i == abreast/2 {
				req.TTL = s.long // the shared name lasts as long as this lease
			}
			req.Shared, req.Wait, req.Lost, req.Queued = true, i%4 > 1, func() { one.told.Store(true) }, func() {}
			var grant driver.Grant
			grant, err = acquire(ctx, backends[i%2], req)
			one.Hold = grant.Hold
			if !errors.Is(err, locker.ErrUnavailable) { // as when others keep changing the same record
				return true
			}
			s.eventually(s.soon, func() bool {
				if one.Hold == nil {
					return true
				}
				undone := one.Undo(ctx)
				return undone == nil || errors.Is(undone, locker.ErrLost)
			})
			return false
		})
		return one, err
	}
	come := func(ctx context.Context, i int) (err error) {
		sharers[i], err = acquire(ctx, i)
		return err
	}
	s.each(len(sharers), "Acquire of a sharer", func(ctx context.Context, i int) error {
		if full.Load() || time.Since(began) > s.coming {
			return nil
		}
		err := come(ctx, i)
		if i >= s.fewest && errors.Is(err, locker.ErrRefused) {
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
		s.each(s.leaving, "Release of a sharer", func(ctx context.Context, i int) error { return sharers[i].Release(ctx, 0) })
		s.each(s.leaving, "Acquire of a sharer after another has left", come)
		s.each(4, fmt.Sprintf("Acquire of a sharer beyond %d", n), beyond)
	}
	var st locker.State
	var err error
	s.eventually(s.patience(), func() bool {
		st, err = operator.Inspect(s.within(s.patience()), name)
		return err != nil || st.Sharers == n
	})
	brief := st.Remaining > 0 && st.Remaining < s.long-time.Since(began)-2*time.Second
	if err == nil && (st.Sharers != n || brief || len(st.Sharing) > places) {
		s.not("%d share a name, and Inspect reported %d for %v, with labels %q", n, st.Sharers, st.Remaining, st.Sharing)
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
		s.each(n, "Release of a sharer", func(ctx context.Context, i int) error { return sharers[i].Release(ctx, 0) })
	} else if err != nil {
		s.not("Break of %d sharers: %v", n, err)
	} else {
		lost := func(ctx context.Context, i int) (err error) {
			if !s.eventually(s.patience(), func() bool {
				if one := sharers[i]; !one.told.Load() && !errors.Is(err, locker.ErrLost) {
					_, err = one.Renew(ctx)
				}
				return sharers[i].told.Load() || errors.Is(err, locker.ErrLost)
			}) {
				return fmt.Errorf("it returned %v, and Lost was not called", err) //nolint:errorlint // it may be nil
			}
			return nil
		}
		// A service that notifies one of them must notify all.
		s.eventually(settle, func() bool { return told() > 0 })
		if !s.eventually(s.patience(), func() bool { k := told(); return k == 0 || k == n }) {
			s.not("Break has removed %d sharers, and Lost was called for %d", n, told())
		}
		s.each(n, "Renew of a sharer that Break has removed", lost)
	}
	s.unlock(s.try(operator, name, locker.TTL(s.long)))
}
