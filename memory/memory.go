package memory

import (
	"context"
	"iter"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/memlock"
)

// Backend keeps locks in memory. It is a [driver.Backend]: programs pass it to locker.New and use the
// Client. Many Clients may share it.
type Backend struct{ locks *memlock.Backend }

var (
	_ driver.Backend  = (*Backend)(nil)
	_ driver.Prompt   = (*Backend)(nil)
	_ driver.Queue    = (*Backend)(nil)
	_ driver.Operator = (*Backend)(nil)
)

// New returns a Backend in which no lock is held.
func New() *Backend { return &Backend{memlock.New(false)} }

// Acquire takes the lock if it is free. Otherwise it waits in the order of the calls if req.Wait is
// set, and is refused if not.
func (b *Backend) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return b.locks.Acquire(ctx, req)
}

// Guarantees returns the promises described in the package comment.
func (b *Backend) Guarantees() driver.Guarantees { return b.locks.Guarantees() }

// Queue returns true: Acquire waits in the order of the calls.
func (b *Backend) Queue() bool { return b.locks.Queue() }

// Prompt returns true: a call waits only for the queue, and ends with its context.
func (b *Backend) Prompt() bool { return b.locks.Prompt() }

// Inspect implements [driver.Operator].
func (b *Backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	return b.locks.Inspect(ctx, name)
}

// List implements [driver.Operator].
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	return b.locks.List(ctx, prefix)
}

// Break implements [driver.Operator]: the lease of the holder, or of every sharer, is lost, and the
// next waiter gets the lock.
func (b *Backend) Break(ctx context.Context, st driver.State) error { return b.locks.Break(ctx, st) }

// Close ends every wait with ErrClosed, and refuses later calls. Held locks stay until they are
// released, so close a shared Backend after the last of its Clients. Close always returns nil.
func (b *Backend) Close() error { return b.locks.Close() }
