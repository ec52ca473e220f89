package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/golockers/locker"
)

// Backend keeps locks in memory. It is a [locker.Backend]; programs give it
// to [locker.New] and use the Client. It may be shared by many Clients.
type Backend struct {
	closed    chan struct{} // closed by Close
	closeOnce sync.Once

	mu     sync.Mutex
	queues map[string][]*hold // by name: the first has the lock, the others wait, longest first
	token  uint64             // the last one given out, to whatever name
}

var (
	_ locker.Backend   = (*Backend)(nil)
	_ locker.Inspector = (*Backend)(nil)
	_ locker.Queuer    = (*Backend)(nil)
	_ locker.Prompt    = (*Backend)(nil)
)

// New returns a Backend without any lock held.
func New() *Backend {
	return &Backend{closed: make(chan struct{}), queues: make(map[string][]*hold)}
}

// Guarantees says what the package comment says, for programs.
func (b *Backend) Guarantees() locker.Guarantees {
	return locker.Guarantees{
		Backend:           "memory",
		Scope:             locker.ScopeProcess,
		Exclusion:         locker.ExclusionMemory,
		Fencing:           locker.FencingWhileKept,
		Order:             locker.OrderFIFO,
		DeadHolder:        locker.RecoveryAtOnce,
		SurvivesClockJump: true,
		RestsOn: "the memory of one process, with which locks and tokens end; " +
			"a goroutine that does not unlock holds for ever, unless MaxHold bounds it",
	}
}

// HasQueue implements [locker.Queuer].
func (b *Backend) HasQueue() bool { return true }

// Acquire takes the lock if it is free. If it is not, Acquire waits for it in
// the order of the calls if req.Wait is set, and returns ErrHeld otherwise.
func (b *Backend) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	if err := ctx.Err(); err != nil {
		return locker.Grant{}, err
	}
	h := &hold{backend: b, name: req.Name, label: req.Label, lost: req.Lost, granted: make(chan struct{})}
	first, err := b.enter(h, req.Wait)
	if err != nil {
		return locker.Grant{}, err
	}
	if !first && req.Queued != nil {
		req.Queued()
	}
	select {
	case <-h.granted:
		return locker.Grant{Hold: h, Validity: locker.Validity{Since: h.since}, Token: h.token}, nil
	case <-ctx.Done():
		err = fmt.Errorf("%w (%w)", locker.ErrHeld, ctx.Err())
	case <-b.closed:
		err = locker.ErrClosed
	}
	// If the lock was granted at this very moment, it goes to the next.
	b.leave(h)
	return locker.Grant{}, err
}

// enter puts h at the end of the queue for its name, and grants it the lock if
// it is the first there.
func (b *Backend) enter(h *hold, wait bool) (first bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.closed:
		return false, locker.ErrClosed
	default:
	}
	queue := b.queues[h.name]
	if len(queue) > 0 && !wait {
		return false, locker.ErrHeld
	}
	b.queues[h.name] = append(queue, h)
	if len(queue) == 0 {
		b.grant(h)
	}
	return len(queue) == 0, nil
}

// leave takes h out of its queue, and reports whether it was in it. The lock
// goes to who is first then.
func (b *Backend) leave(h *hold) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	queue := b.queues[h.name]
	i := slices.Index(queue, h)
	if i < 0 {
		return false
	}
	queue = slices.Delete(queue, i, i+1)
	if len(queue) == 0 {
		delete(b.queues, h.name)
		return true
	}
	b.queues[h.name] = queue
	if i == 0 {
		b.grant(queue[0])
	}
	return true
}

// grant gives the lock to h, the first of its queue. b.mu is held.
func (b *Backend) grant(h *hold) {
	b.token++
	h.token = b.token
	// The time in the queue is no part of the hold.
	h.since = time.Now()
	close(h.granted)
}

// first returns who has the lock, or nil, and how many wait behind it.
func (b *Backend) first(name string) (h *hold, waiters int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	queue := b.queues[name]
	if len(queue) == 0 {
		return nil, 0
	}
	return queue[0], len(queue) - 1
}

// Inspect says who holds name and how many wait for it.
func (b *Backend) Inspect(ctx context.Context, name string) (locker.State, error) {
	h, waiters := b.first(name)
	if h == nil {
		return locker.State{}, ctx.Err()
	}
	return locker.State{Held: true, Label: h.label, Token: h.token, Waiters: waiters}, ctx.Err()
}

// Delete takes the lock on name away from whoever holds it, as an operator
// with a grip on the service could. The holder's lease is lost, and the next
// in the queue gets the lock. It returns false if nobody held it. name is the
// whole name, with the Client's prefix.
func (b *Backend) Delete(name string) bool {
	h, _ := b.first(name)
	if h == nil || !b.leave(h) {
		return false
	}
	// Without b.mu: whoever is told may call back.
	if h.lost != nil {
		h.lost()
	}
	return true
}

// Prompt says that no call outlasts its context: nothing here is waited for
// but the queue.
func (b *Backend) Prompt() bool { return true }

// Close ends every wait with ErrClosed, and refuses what comes after it. Who
// holds a lock keeps it until it is released; so a Backend that several
// Clients share is closed after the last of them. It always returns nil.
func (b *Backend) Close() error {
	b.closeOnce.Do(func() { close(b.closed) })
	return nil
}

// hold is one attempt's place in a queue: the lock, or the wait for it.
type hold struct {
	backend *Backend
	name    string
	label   string
	lost    func()

	granted chan struct{} // closed when token and since are set
	token   uint64
	since   time.Time
}

// Renew looks whether the lock is still there: it has no deadline to move.
func (h *hold) Renew(context.Context) (locker.Validity, error) {
	if first, _ := h.backend.first(h.name); first != h {
		return locker.Validity{}, locker.ErrLost
	}
	return locker.Validity{Since: time.Now()}, nil
}

// Release gives the lock to the next in the queue.
func (h *hold) Release(context.Context) error {
	if !h.backend.leave(h) {
		return locker.ErrLost
	}
	return nil
}
