// Package memlock is what packages memory and lockertest have in common: locks in the memory of one process.
package memlock

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golockers/locker/driver"
)

// Backend is a [driver.Backend], which may be shared by many Clients.
type Backend struct {
	expiring bool

	mu     sync.Mutex
	queues map[string][]*hold // by name: first the holder, or all sharers; then those who wait, longest first
	token  uint64             // the last one given out, to whatever name
	closed error              // driver.ErrClosed after Close
	fault  error              // what every call returns; nil: none
	ended  chan struct{}      // of those who wait now: closed when the Backend is, or fault is set
}

var (
	_ driver.Backend  = (*Backend)(nil)
	_ driver.Prompt   = (*Backend)(nil)
	_ driver.Operator = (*Backend)(nil)
)

// New returns a Backend without any lock held. Locks of one that is expiring end with their TTL if they are not
// renewed, like those of a network service.
func New(expiring bool) *Backend {
	return &Backend{expiring: expiring, ended: make(chan struct{}), queues: make(map[string][]*hold)}
}

// Fail is that of lockertest.Service.
func (b *Backend) Fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault = err; err != nil && b.closed == nil {
		close(b.ended)
		b.ended = make(chan struct{})
	}
}

// Queue implements [driver.Queue].
func (b *Backend) Queue() bool { return true }

// Guarantees are those that the comment of package memory explains.
func (b *Backend) Guarantees() driver.Guarantees {
	g := driver.Guarantees{
		Backend:           "memory",
		Scope:             driver.ScopeProcess,
		Exclusion:         driver.ExclusionMemory,
		Fencing:           driver.FencingWhileKept,
		Order:             driver.OrderFIFO,
		Shared:            driver.SharingWithTokens,
		DeadHolder:        driver.RecoveryAtOnce,
		SurvivesClockJump: true,
		SurvivesPause:     true,
		MaxMinHold:        366 * 24 * time.Hour, // a lock with one always has a TTL
		MinHoldSlack:      time.Second,
		RestsOn: "the memory of one process, with which locks and tokens end; " +
			"a goroutine that does not unlock holds forever unless MaxHold bounds it",
	}
	if b.expiring {
		g.DeadHolder = driver.RecoveryAfterTTL
		g.RestsOn = "the memory of one process, with which locks and tokens end"
	}
	return g
}

// Acquire takes the lock if it is free. If it is not, Acquire waits for it in
// the order of the calls if req.Wait is set, and is refused otherwise.
func (b *Backend) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	h := &hold{Request: req, backend: b}
	if !b.expiring && req.MinHold == 0 {
		h.TTL = 0
	}
	ended, held, err := b.enter(ctx, h)
	if held && req.Wait {
		req.Queued()
		select {
		case <-h.granted:
			held = false
		case <-ctx.Done():
			held, err = b.giveUp(h, ctx.Err())
		case <-ended:
			held, err = b.giveUp(h, nil)
		}
	}
	switch {
	case held:
		return driver.Grant{Refused: &driver.Refusal{}}, err
	case err != nil:
		return driver.Grant{}, err
	}
	return driver.Grant{Hold: h, Validity: driver.Validity{Since: h.since, TTL: h.TTL}, Token: h.token}, nil
}

// enter puts h at the end of the queue for its name, and grants it the lock if nobody is
// in the way. held: somebody is, and h has a place only if it waits. ended is closed when the Backend is, or
// begins to fail.
func (b *Backend) enter(ctx context.Context, h *hold) (ended <-chan struct{}, held bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err = cmp.Or(ctx.Err(), b.closed, b.fault); err != nil {
		return nil, false, err
	}
	queue := b.queues[h.Name]
	free := len(queue) == 0 || h.follows(queue[len(queue)-1])
	switch {
	case !free && !h.Wait:
		return nil, true, nil
	case free && len(queue) >= driver.MaxSharers:
		return nil, false, fmt.Errorf("%w: %d share %q, and no more can", driver.ErrRefused, len(queue), h.Name)
	}
	if !free {
		h.granted = make(chan struct{})
	}
	b.queues[h.Name] = append(queue, h)
	b.admit(h.Name)
	return b.ended, !free, nil
}

// follows reports whether h has the lock together with before, the one before it in the
// queue: if both are sharers, and that one has it.
func (h *hold) follows(before *hold) bool { return h.Shared && before.Shared && before.token != 0 }

// giveUp removes a waiter from its queue, and returns err, or why all waits end, and whether the lock is
// held by another: it is not if the lock was granted to h before.
func (b *Backend) giveUp(h *hold, err error) (held bool, _ error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.token != 0 {
		return false, nil
	}
	b.drop(h.Name, h.is)
	return err != nil, cmp.Or(err, b.closed, b.fault, driver.ErrUnavailable) // Fail may have cleared it meanwhile
}

// drop removes from a queue those who are meant, and returns them. When all of them are gone, the lock
// goes to those who are next. The caller holds b.mu.
func (b *Backend) drop(name string, meant func(*hold) bool) (gone []*hold) {
	b.queues[name] = slices.DeleteFunc(b.queues[name], func(h *hold) bool {
		if !meant(h) {
			return false
		}
		if gone = append(gone, h); h.timer != nil {
			h.timer.Stop()
		}
		return true
	})
	b.admit(name)
	return gone
}

// is is for drop.
func (h *hold) is(other *hold) bool { return h == other }

// admit gives the lock to the first entry of a queue, and to the sharers who follow it if
// it is one. The caller holds b.mu.
func (b *Backend) admit(name string) {
	queue := b.queues[name]
	if len(queue) == 0 {
		delete(b.queues, name)
	}
	for i, h := range queue[:min(len(queue), driver.MaxSharers)] {
		switch {
		case h.token != 0:
			continue
		case i == 0:
			b.token++
			h.token = b.token
		case h.follows(queue[i-1]):
			h.token = queue[i-1].token
		default:
			return
		}
		h.since = time.Now() // the time in the queue does not count
		if h.TTL > 0 {
			h.end = h.since.Add(max(h.TTL, h.MinHold))
			h.timer = time.AfterFunc(h.end.Sub(h.since), h.expire)
		}
		if h.granted != nil {
			close(h.granted)
		}
	}
}

// holderForm is that of State.Holder: the token, which sharers have in common.
const holderForm = "memory %d"

// stateOf is the State of a name. The caller holds b.mu.
func (b *Backend) stateOf(name string) driver.State {
	st := driver.State{Name: name}
	for _, h := range b.queues[name] {
		if h.token == 0 {
			st.Waiters++
			addLabel(&st.Waiting, st.Waiters, h)
			continue
		}
		if !st.Held {
			st.Held, st.Holder, st.Label, st.Token = true, fmt.Sprintf(holderForm, h.token), h.Label, h.token
		}
		if !h.end.IsZero() {
			st.Remaining = max(st.Remaining, time.Until(h.end))
		}
		if st.Since.IsZero() || h.since.Before(st.Since) {
			st.Since = h.since
		}
		until := h.since.Add(h.MinHold)
		if h.kept {
			until = h.end
		}
		if until.After(time.Now()) && until.After(st.KeptUntil) {
			st.KeptUntil = until
		}
		if h.Shared {
			st.Sharers++
			addLabel(&st.Sharing, st.Sharers, h)
		}
	}
	return st
}

// addLabel adds the label of the n-th waiter or sharer to those of the others: State has 16 at most.
func addLabel(labels *[]string, n int, h *hold) {
	if n <= 16 && !slices.Contains(*labels, h.Label) {
		*labels = append(*labels, h.Label)
	}
}

// Inspect implements [driver.Operator].
func (b *Backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stateOf(name), cmp.Or(b.fault, ctx.Err())
}

// List implements [driver.Operator].
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	return func(yield func(driver.State, error) bool) {
		b.mu.Lock()
		err := b.fault
		var states []driver.State
		for name := range b.queues {
			if err == nil && strings.HasPrefix(name, prefix) {
				states = append(states, b.stateOf(name))
			}
		}
		b.mu.Unlock()
		for _, st := range states {
			if err = ctx.Err(); err != nil || !yield(st, nil) {
				break
			}
		}
		if err != nil {
			yield(driver.State{}, err)
		}
	}
}

// Break implements [driver.Operator]: the lease of the holder, or of every sharer, is
// lost, and the next waiter gets the lock. It also works while the Backend fails.
func (b *Backend) Break(_ context.Context, st driver.State) error {
	var token uint64
	if _, err := fmt.Sscanf(st.Holder, holderForm, &token); err != nil && st.Holder != "" {
		return fmt.Errorf("%w: %q is no Holder of this backend", driver.ErrInvalid, st.Holder)
	}
	b.mu.Lock()
	broken := b.drop(st.Name, func(h *hold) bool { return token != 0 && h.token == token })
	b.mu.Unlock()
	for _, h := range broken { // without b.mu: Lost may call back
		h.Lost()
	}
	return nil
}

// Lose is that of lockertest.Service.
func (b *Backend) Lose(name string) bool {
	b.mu.Lock()
	st := b.stateOf(name)
	b.mu.Unlock()
	return st.Held && b.Break(context.Background(), st) == nil
}

// Prompt returns true: a call waits only for the queue, and ends with its context.
func (b *Backend) Prompt() bool { return true }

// Close ends every wait with ErrClosed, and refuses later calls. Held locks stay
// until they are released, so close a Backend of several Clients after the last of
// them. Close always returns nil.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed == nil {
		close(b.ended)
	}
	b.closed = driver.ErrClosed
	return nil
}

// hold is a queue entry of one attempt: it has the lock, or waits for it.
type hold struct {
	driver.Request // TTL 0: no deadline
	backend        *Backend
	granted        chan struct{} // closed when the lock is granted; nil: at once

	// Guarded by backend.mu; token and since do not change any more.
	token uint64 // 0: it waits
	since time.Time
	end   time.Time // when it ends unless it is renewed; zero: never
	timer *time.Timer
	kept  bool // released, but for its MinHold
}

// Renew checks that the lock is still held, and moves its deadline if it has one.
func (h *hold) Renew(context.Context) (driver.Validity, error) {
	now := time.Now()
	err := h.held(false, func() {
		if h.TTL > 0 && now.Add(h.TTL).After(h.end) { // a MinHold may last longer
			h.end = now.Add(h.TTL)
			h.timer.Reset(h.TTL)
		}
	})
	if err != nil {
		return driver.Validity{}, err
	}
	return driver.Validity{Since: now, TTL: h.TTL}, nil
}

// Release gives the lock to the next waiter, at once or when keep has passed.
func (h *hold) Release(_ context.Context, keep time.Duration) error {
	return h.held(true, func() {
		switch {
		case keep == 0:
			h.backend.drop(h.Name, h.is)
		case !h.kept:
			if h.timer != nil {
				h.timer.Stop()
			}
			h.kept, h.end, h.timer = true, time.Now().Add(keep), time.AfterFunc(keep, h.expire)
		}
	})
}

// Undo implements [driver.Hold]. While the Backend fails, only the TTL removes the lock.
func (h *hold) Undo(context.Context) error {
	b := h.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault != nil && slices.Contains(b.queues[h.Name], h) {
		return b.fault
	}
	b.drop(h.Name, h.is)
	return nil
}

// RaiseToken implements [driver.TokenRaiser].
func (h *hold) RaiseToken(_ context.Context, token uint64) error {
	return h.held(false, func() { h.backend.token = max(h.backend.token, token) })
}

// held calls do with the backend's mutex held if h has the lock; kept: or if only its MinHold keeps that.
func (h *hold) held(kept bool, do func()) error {
	b := h.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.fault != nil:
		return b.fault
	case h.token == 0 || h.kept && !kept || !slices.Contains(b.queues[h.Name], h):
		return driver.ErrLost
	}
	do()
	return nil
}

// expire ends a lock that was not renewed in time.
func (h *hold) expire() {
	b := h.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	// It may have been renewed at this very moment.
	b.drop(h.Name, func(other *hold) bool { return h == other && !time.Now().Before(h.end) })
}
