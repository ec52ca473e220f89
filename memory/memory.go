package memory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golockers/locker"
)

// Backend keeps locks in memory. It is a [locker.Backend]; programs give it
// to [locker.New] and use the Client. It may be shared by many Clients.
type Backend struct {
	expiring bool

	mu     sync.Mutex
	queues map[string][]*hold // by name: first the holder, or all sharers; then those who wait, longest first
	token  uint64             // the last one given out, to whatever name
	closed bool
	fault  error         // what every call returns; nil: none
	ended  chan struct{} // closed when the Backend is, or fault is set
}

var (
	_ locker.Backend  = (*Backend)(nil)
	_ locker.Prompt   = (*Backend)(nil)
	_ locker.Operator = (*Backend)(nil)
)

// New returns a Backend without any lock held.
func New() *Backend {
	return &Backend{ended: make(chan struct{}), queues: make(map[string][]*hold)}
}

// NewExpiring returns a Backend whose locks end with their TTL if they are not
// renewed, like those of a network service. It is for tests of programs.
func NewExpiring() *Backend {
	b := New()
	b.expiring = true
	return b
}

// Fail makes every call of the Backend return err from now on, including calls that
// wait, until Fail is called with nil. It is an outage if err matches
// [locker.ErrUnavailable], and otherwise a refusal. Meanwhile locks are neither
// renewed nor released. It is for tests of programs; to take a lock away from its
// holder, use [Backend.Delete].
func (b *Backend) Fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
	case b.fault == nil && err != nil:
		close(b.ended)
	case b.fault != nil && err == nil:
		b.ended = make(chan struct{})
	}
	b.fault = err
}

// Guarantees returns the promises of the package comment.
func (b *Backend) Guarantees() locker.Guarantees {
	g := locker.Guarantees{
		Backend:           "memory",
		Scope:             locker.ScopeProcess,
		Exclusion:         locker.ExclusionMemory,
		Fencing:           locker.FencingWhileKept,
		Queue:             true,
		Order:             locker.OrderFIFO,
		Shared:            locker.SharingWithTokens,
		DeadHolder:        locker.RecoveryAtOnce,
		SurvivesClockJump: true,
		SurvivesPause:     true,
		MaxMinHold:        366 * 24 * time.Hour, // a lock with one always has a TTL
		RestsOn: "the memory of one process, with which locks and tokens end; " +
			"a goroutine that does not unlock holds for ever, unless MaxHold bounds it",
	}
	if b.expiring {
		g.DeadHolder = locker.RecoveryAfterTTL
		g.RestsOn = "the memory of one process, with which locks and tokens end"
	}
	return g
}

// Acquire takes the lock if it is free. If it is not, Acquire waits for it in
// the order of the calls if req.Wait is set, and returns ErrHeld otherwise.
func (b *Backend) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	h := &hold{backend: b, name: req.Name, label: req.Label, shared: req.Shared, lost: req.Lost,
		granted: make(chan struct{})}
	if b.expiring || req.MinHold > 0 {
		h.ttl, h.minHold = req.TTL, req.MinHold
	}
	ended, err := b.enter(ctx, h, req)
	if err != nil {
		return locker.Grant{}, err
	}
	if req.Queued != nil {
		select {
		case <-h.granted:
		default:
			req.Queued()
		}
	}
	select {
	case <-h.granted:
	case <-ctx.Done():
		err = b.giveUp(h, fmt.Errorf("%w (%w)", locker.ErrHeld, ctx.Err()))
	case <-ended:
		err = b.giveUp(h, nil)
	}
	if err != nil {
		return locker.Grant{}, err
	}
	return locker.Grant{Hold: h, Validity: locker.Validity{Since: h.since, TTL: h.ttl}, Token: h.token}, nil
}

// enter puts h at the end of the queue for its name, and grants it the lock if nobody is
// in the way. ended is closed when the Backend is, or begins to fail.
func (b *Backend) enter(ctx context.Context, h *hold, req locker.Request) (ended <-chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	queue := b.queues[h.name]
	free := len(queue) == 0 || h.follows(queue[len(queue)-1])
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case b.closed:
		return nil, locker.ErrClosed
	case b.fault != nil:
		return nil, b.fault
	case !free && !req.Wait:
		return nil, locker.ErrHeld
	case free && len(queue) >= locker.MaxSharers:
		return nil, fmt.Errorf("%w: %d share %q, and no more can", locker.ErrRefused, len(queue), h.name)
	}
	b.queues[h.name] = append(queue, h)
	b.admit(h.name)
	return b.ended, nil
}

// follows reports whether h has the lock together with before, the one before it in the
// queue: if both are sharers, and that one has it.
func (h *hold) follows(before *hold) bool { return h.shared && before.shared && before.token != 0 }

// giveUp removes a waiter from its queue, and returns err, or why all waits end. It returns
// nil if the lock was granted to it before: "held" would then be wrong.
func (b *Backend) giveUp(h *hold, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case h.token != 0:
		return nil
	case err != nil:
	case b.closed:
		err = locker.ErrClosed
	default:
		err = cmp.Or(b.fault, locker.ErrUnavailable) // Fail may have cleared it meanwhile
	}
	b.drop(h)
	return err
}

// drop removes h from its queue, and reports whether it was there. The lock goes to those
// who are next. The caller holds b.mu.
func (b *Backend) drop(h *hold) bool {
	i := slices.Index(b.queues[h.name], h)
	if i < 0 {
		return false
	}
	if h.timer != nil {
		h.timer.Stop()
	}
	b.queues[h.name] = slices.Delete(b.queues[h.name], i, i+1)
	b.admit(h.name)
	return true
}

// admit gives the lock to the first entry of a queue, and to the sharers who follow it if
// it is one. The caller holds b.mu.
func (b *Backend) admit(name string) {
	queue := b.queues[name]
	if len(queue) == 0 {
		delete(b.queues, name)
	}
	for i, h := range queue[:min(len(queue), locker.MaxSharers)] {
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
		if h.ttl > 0 {
			h.end = h.since.Add(max(h.ttl, h.minHold))
			h.timer = time.AfterFunc(h.end.Sub(h.since), h.expire)
		}
		close(h.granted)
	}
}

// maxWaiting is how many places of the queue State.Waiting covers, and State.Sharing.
const maxWaiting = 16

// stateOf is the State of a name. The caller holds b.mu.
func (b *Backend) stateOf(name string) locker.State {
	have, waiting := b.holders(name)
	st := locker.State{Name: name, Waiters: len(waiting), Waiting: labels(waiting)}
	for _, h := range have {
		st.Held, st.Holder, st.Token = true, fmt.Sprintf(holderForm, h.token), h.token
		if h.ttl > 0 {
			st.Remaining = max(st.Remaining, time.Until(h.end))
		}
		if h.shared {
			st.Sharers, st.Sharing = len(have), labels(have)
		}
		st.Label = have[0].label
	}
	return st
}

// holderForm is that of State.Holder: the token, which sharers have in common.
const holderForm = "memory %d"

// holders are those of a queue who have the lock, and those who wait. The caller holds b.mu.
func (b *Backend) holders(name string) (have, waiting []*hold) {
	queue := b.queues[name]
	i := 0
	for i < len(queue) && queue[i].token != 0 {
		i++
	}
	return queue[:i], queue[i:]
}

// labels are those of the first entries, each once.
func labels(entries []*hold) (all []string) {
	for _, h := range entries[:min(len(entries), maxWaiting)] {
		if !slices.Contains(all, h.label) {
			all = append(all, h.label)
		}
	}
	return all
}

// Inspect implements [locker.Operator].
func (b *Backend) Inspect(ctx context.Context, name string) (locker.State, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stateOf(name), cmp.Or(b.fault, ctx.Err())
}

// List implements [locker.Operator].
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[locker.State, error] {
	return func(yield func(locker.State, error) bool) {
		b.mu.Lock()
		err := b.fault
		var states []locker.State
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
			yield(locker.State{}, err)
		}
	}
}

// Break implements [locker.Operator]: the lease of the holder, or of every sharer, is
// lost, and the next waiter gets the lock. It also works while the Backend fails.
func (b *Backend) Break(_ context.Context, st locker.State) error {
	var token uint64
	if _, err := fmt.Sscanf(st.Holder, holderForm, &token); err != nil && st.Holder != "" {
		return fmt.Errorf("%w: %q is no Holder of this backend", locker.ErrInvalid, st.Holder)
	}
	b.mu.Lock()
	have, _ := b.holders(st.Name)
	have = slices.DeleteFunc(slices.Clone(have), func(h *hold) bool { return h.token != token })
	for _, h := range slices.Backward(have) { // the waiters come when the last is gone
		b.drop(h)
	}
	b.mu.Unlock()
	for _, h := range have { // without b.mu: Lost may call back
		h.lost()
	}
	return nil
}

// Delete breaks the lock on name, for tests: it returns false if nobody held name. name is
// the whole name, with the Client's prefix.
func (b *Backend) Delete(name string) bool {
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
	if !b.closed && b.fault == nil {
		close(b.ended)
	}
	b.closed = true
	return nil
}

// hold is a queue entry of one attempt: it has the lock, or waits for it.
type hold struct {
	backend *Backend
	name    string
	label   string
	shared  bool
	lost    func()

	ttl, minHold time.Duration // ttl 0: no deadline
	granted      chan struct{} // closed when the lock is granted, and what follows is set

	// Guarded by backend.mu; token and since do not change any more.
	token uint64 // 0: it waits
	since time.Time
	end   time.Time // when it ends unless it is renewed
	timer *time.Timer
}

// Renew checks that the lock is still held, and moves its deadline if it has one.
func (h *hold) Renew(context.Context) (locker.Validity, error) {
	now := time.Now()
	err := h.held(func() {
		if h.ttl > 0 && now.Add(h.ttl).After(h.end) { // a MinHold may last longer
			h.end = now.Add(h.ttl)
			h.timer.Reset(h.ttl)
		}
	})
	if err != nil {
		return locker.Validity{}, err
	}
	return locker.Validity{Since: now, TTL: h.ttl}, nil
}

// Release gives the lock to the next waiter.
func (h *hold) Release(context.Context) error {
	b := h.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault != nil {
		return b.fault
	}
	if !b.drop(h) {
		return locker.ErrLost
	}
	return nil
}

// Undo implements [locker.Hold]. While the Backend fails, only the TTL removes the lock.
func (h *hold) Undo(context.Context) error {
	b := h.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault != nil && slices.Contains(b.queues[h.name], h) {
		return b.fault
	}
	b.drop(h)
	return nil
}

// RaiseToken implements [locker.TokenRaiser].
func (h *hold) RaiseToken(_ context.Context, token uint64) error {
	return h.held(func() { h.backend.token = max(h.backend.token, token) })
}

// held calls do with the backend's mutex held if h has the lock.
func (h *hold) held(do func()) error {
	b := h.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.fault != nil:
		return b.fault
	case h.token == 0 || !slices.Contains(b.queues[h.name], h):
		return locker.ErrLost
	}
	do()
	return nil
}

// expire ends a lock that was not renewed in time.
func (h *hold) expire() {
	b := h.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if !time.Now().Before(h.end) { // and was not renewed at this very moment
		b.drop(h)
	}
}
