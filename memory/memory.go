package memory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golockers/locker"
)

// Backend keeps locks in memory. It is a [locker.Backend]; programs give it
// to [locker.New] and use the Client. It may be shared by many Clients.
type Backend struct {
	expiring  bool
	closed    chan struct{} // closed by Close
	closeOnce sync.Once

	mu     sync.Mutex
	queues map[string][]*hold // by name: first the holder, or all sharers; then those who wait, longest first
	token  uint64             // the last one given out, to whatever name
	fault  error              // what every call returns; nil: none
	failed chan struct{}      // closed when fault is set
}

var (
	_ locker.Backend  = (*Backend)(nil)
	_ locker.Prompt   = (*Backend)(nil)
	_ locker.Operator = (*Backend)(nil)
)

// New returns a Backend without any lock held.
func New() *Backend {
	return &Backend{
		closed: make(chan struct{}),
		failed: make(chan struct{}),
		queues: make(map[string][]*hold),
	}
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
	case b.fault == nil && err != nil:
		close(b.failed)
	case b.fault != nil && err == nil:
		b.failed = make(chan struct{})
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
	if err := ctx.Err(); err != nil {
		return locker.Grant{}, err
	}
	h := &hold{backend: b, name: req.Name, label: req.Label, shared: req.Shared, lost: req.Lost,
		granted: make(chan struct{})}
	if b.expiring || req.MinHold > 0 {
		h.ttl, h.minHold = req.TTL, req.MinHold
	}
	granted, failed, err := b.enter(h, req.Wait)
	if err != nil {
		return locker.Grant{}, err
	}
	if !granted && req.Queued != nil {
		req.Queued()
	}
	select {
	case <-h.granted:
	case <-ctx.Done():
		if b.giveUp(h) {
			return locker.Grant{}, fmt.Errorf("%w (%w)", locker.ErrHeld, ctx.Err())
		}
	case <-failed:
		b.leave(h)
		return locker.Grant{}, b.isFailing()
	case <-b.closed:
		b.leave(h)
		return locker.Grant{}, locker.ErrClosed
	}
	return locker.Grant{Hold: h, Validity: locker.Validity{Since: h.since, TTL: h.ttl}, Token: h.token}, nil
}

// enter puts h at the end of the queue for its name, and grants it the lock if nobody is
// in the way. failed is closed when the Backend begins to fail.
func (b *Backend) enter(h *hold, wait bool) (granted bool, failed <-chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.closed:
		return false, nil, locker.ErrClosed
	default:
	}
	if b.fault != nil {
		return false, nil, b.fault
	}
	queue := b.queues[h.name]
	granted = len(queue) == 0 || h.follows(queue[len(queue)-1])
	switch {
	case !granted && !wait:
		return false, nil, locker.ErrHeld
	case granted && len(queue) >= locker.MaxSharers:
		return false, nil, fmt.Errorf("%w: %d share %q, and no more can", locker.ErrRefused, len(queue), h.name)
	}
	b.queues[h.name] = append(queue, h)
	b.admit(h.name)
	return granted, b.failed, nil
}

// follows reports whether h has the lock together with before, the one before it in the
// queue: if both are sharers, and that one has it.
func (h *hold) follows(before *hold) bool { return h.shared && before.shared && before.isGranted() }

// isFailing returns the error that Fail has set, or ErrUnavailable if Fail has cleared
// it meanwhile.
func (b *Backend) isFailing() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return cmp.Or(b.fault, locker.ErrUnavailable)
}

// giveUp removes a waiter from its queue; it returns false if the lock was granted to it
// before: "held" would then be wrong.
func (b *Backend) giveUp(h *hold) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !h.isGranted() && b.drop(h)
}

// leave removes h from its queue. If the lock was granted at this very moment, it goes
// to the next waiter.
func (b *Backend) leave(h *hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(h)
}

// drop removes h from its queue, and reports whether it was there. The lock goes to those
// who are next. The caller holds b.mu.
func (b *Backend) drop(h *hold) bool {
	queue := b.queues[h.name]
	i := slices.Index(queue, h)
	if i < 0 {
		return false
	}
	if h.timer != nil {
		h.timer.Stop()
	}
	queue = slices.Delete(queue, i, i+1)
	if len(queue) == 0 {
		delete(b.queues, h.name)
		return true
	}
	b.queues[h.name] = queue
	b.admit(h.name)
	return true
}

// admit gives the lock to the first entry of a queue, and to the sharers who follow it if
// it is one. The caller holds b.mu.
func (b *Backend) admit(name string) {
	queue := b.queues[name]
	for i, h := range queue[:min(len(queue), locker.MaxSharers)] {
		switch {
		case h.isGranted():
			continue
		case i == 0:
			b.token++
			h.token = b.token
		case h.follows(queue[i-1]):
			h.token = queue[i-1].token
		default:
			return
		}
		b.grant(h)
	}
}

// grant gives the lock to h, which has its token. The caller holds b.mu.
func (b *Backend) grant(h *hold) {
	// The time in the queue does not count for the hold.
	h.since = time.Now()
	if h.ttl > 0 {
		h.end = h.since.Add(max(h.ttl, h.minHold))
		h.timer = time.AfterFunc(h.end.Sub(h.since), h.expire)
	}
	close(h.granted)
}

// maxWaiting is how many places of the queue State.Waiting covers, and State.Sharing.
const maxWaiting = 16

// stateOf is the State of a queue. The caller holds b.mu.
func stateOf(name string, queue []*hold) locker.State {
	have := holders(queue)
	st := locker.State{Name: name, Held: true, Holder: have[0].holder(), Label: have[0].label, Token: have[0].token, Waiters: len(queue) - len(have)}
	for _, h := range have {
		if h.ttl > 0 {
			st.Remaining = max(st.Remaining, time.Until(h.end))
		}
	}
	if have[0].shared {
		st.Sharers, st.Sharing = len(have), labels(have)
	}
	st.Waiting = labels(queue[len(have):])
	return st
}

// holder is the State.Holder of those who have the token of h.
func (h *hold) holder() string { return strconv.FormatUint(h.token, 10) }

// holders are those of a queue who have the lock.
func holders(queue []*hold) []*hold {
	i := 1
	for i < len(queue) && queue[i].isGranted() {
		i++
	}
	return queue[:i]
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
	queue := b.queues[name]
	switch {
	case b.fault != nil:
		return locker.State{}, b.fault
	case len(queue) == 0:
		return locker.State{Name: name}, ctx.Err()
	}
	return stateOf(name, queue), ctx.Err()
}

// List implements [locker.Operator].
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[locker.State, error] {
	return func(yield func(locker.State, error) bool) {
		b.mu.Lock()
		err := b.fault
		var states []locker.State
		for name, queue := range b.queues {
			if err == nil && strings.HasPrefix(name, prefix) {
				states = append(states, stateOf(name, queue))
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
	b.mu.Lock()
	var have []*hold
	if queue := b.queues[st.Name]; len(queue) > 0 && queue[0].holder() == st.Holder {
		have = slices.Clone(holders(queue))
	}
	for _, h := range slices.Backward(have) { // the waiters come when the last is gone
		b.drop(h)
	}
	b.mu.Unlock()
	// Without b.mu: Lost may call back.
	for _, h := range have {
		if h.lost != nil {
			h.lost()
		}
	}
	return nil
}

// Delete breaks the lock on name, for tests: it returns false if nobody held name. name is
// the whole name, with the Client's prefix.
func (b *Backend) Delete(name string) bool {
	b.mu.Lock()
	st := locker.State{Name: name}
	if queue := b.queues[name]; len(queue) > 0 {
		st = stateOf(name, queue)
	}
	b.mu.Unlock()
	_ = b.Break(context.Background(), st)
	return st.Held
}

// Prompt returns true: a call waits only for the queue, and ends with its context.
func (b *Backend) Prompt() bool { return true }

// Close ends every wait with ErrClosed, and refuses later calls. Held locks stay
// until they are released, so close a Backend of several Clients after the last of
// them. Close always returns nil.
func (b *Backend) Close() error {
	b.closeOnce.Do(func() { close(b.closed) })
	return nil
}

// hold is a queue entry of one attempt: it has the lock, or waits for it.
type hold struct {
	backend *Backend
	name    string
	label   string
	shared  bool
	lost    func()

	granted      chan struct{} // closed when token and since are set
	token        uint64
	since        time.Time
	ttl, minHold time.Duration // ttl 0: no deadline
	end          time.Time     // when it ends unless it is renewed; guarded by backend.mu
	timer        *time.Timer
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
	case !h.isGranted() || !slices.Contains(b.queues[h.name], h):
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

func (h *hold) isGranted() bool {
	select {
	case <-h.granted:
		return true
	default:
		return false
	}
}
