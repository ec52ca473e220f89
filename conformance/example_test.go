package conformance_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
)

// table is the lock service of this example: a map in which each lock has an owner and a time when it
// ends.
type table struct {
	mu   sync.Mutex
	rows map[string]row
}

type row struct {
	owner string
	ends  time.Time
}

// row returns the present holder of name. t.mu is held.
func (t *table) row(name string) (r row, held bool) {
	r, held = t.rows[name]
	return r, held && time.Now().Before(r.ends)
}

// set takes name for owner, if nobody else has it. With renewing, owner must already have it.
func (t *table) set(name, owner string, ttl time.Duration, renewing bool) (ok bool, remaining time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, held := t.row(name)
	if held && r.owner != owner || renewing && !held {
		return false, time.Until(r.ends)
	}
	t.rows[name] = row{owner, time.Now().Add(ttl)}
	return true, 0
}

// remove ends the lock on name if owner has it or owner is "".
func (t *table) remove(name, owner string) (ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, held := t.row(name)
	if !held || owner != "" && r.owner != owner {
		return false
	}
	delete(t.rows, name)
	return true
}

// backend is a client of the table, and a complete driver.Backend.
type backend struct {
	table  *table
	closed atomic.Bool
}

func (b *backend) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		Backend:    "table",
		Scope:      driver.ScopeProcess,
		Exclusion:  driver.ExclusionMemory,
		DeadHolder: driver.RecoveryAfterTTL,
		RestsOn:    "the memory of one process, with which locks end",
	}
}

func (b *backend) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if b.closed.Load() {
		return driver.Grant{}, driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	since := time.Now() // before the request, not after it
	ok, remaining := b.table.set(req.Name, req.Owner, req.TTL, false)
	if !ok {
		return driver.Grant{Refused: &driver.Refusal{Remaining: remaining}}, nil
	}
	return driver.Grant{
		Hold:     &entry{b.table, req},
		Validity: driver.Validity{Since: since, TTL: req.TTL},
	}, nil
}

func (b *backend) Close() error {
	b.closed.Store(true)
	return nil
}

// entry is a held lock.
type entry struct {
	table *table
	req   driver.Request
}

func (e *entry) Renew(context.Context) (driver.Validity, error) {
	since := time.Now()
	if ok, _ := e.table.set(e.req.Name, e.req.Owner, e.req.TTL, true); !ok {
		return driver.Validity{}, driver.ErrLost
	}
	return driver.Validity{Since: since, TTL: e.req.TTL}, nil
}

func (e *entry) Release(context.Context, time.Duration) error {
	if !e.table.remove(e.req.Name, e.req.Owner) {
		return driver.ErrLost
	}
	return nil
}

// Undo needs only Release here, because every request is answered.
func (e *entry) Undo(ctx context.Context) error {
	_ = e.Release(ctx, 0)
	return nil
}

// A complete backend, and the harness that proves it. In a test of its package, conformance.Run(t,
// harness) runs all checks and histories; some of them run here.
func Example() {
	locks := &table{rows: make(map[string]row)}
	harness := conformance.Harness{
		New:    func(conformance.T) driver.Backend { return &backend{table: locks} },
		TTL:    300 * time.Millisecond,
		Delete: func(_ conformance.T, name string) { locks.remove(name, "") },
	}
	fmt.Println("promises broken:", conformance.Check(context.Background(), harness, "claims", "exclusion"))
	// Output:
	// promises broken: <nil>
}
