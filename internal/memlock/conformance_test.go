package memlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/memlock"
)

// connection is what the suite closes: the Backend is the service itself.
type connection struct {
	*memlock.Backend
	life  context.Context
	close context.CancelFunc
}

func (c *connection) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if c.life.Err() != nil {
		return driver.Grant{}, driver.ErrClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	g, err := c.Backend.Acquire(ctx, req)
	if err != nil && c.life.Err() != nil {
		err = driver.ErrClosed
	}
	return g, err
}

func (c *connection) Close() error {
	c.close()
	return nil
}

// All of the suite, which `make test` runs without the race detector.
func TestEveryKindInVirtualTime(t *testing.T) {
	for kind, expiring := range map[string]bool{"of memory": false, "expiring": true} {
		t.Run(kind, func(t *testing.T) {
			conformance.RunVirtual(t, func(conformance.T) conformance.Harness { return harness(memlock.New(expiring)) })
		})
	}
}

// What the race detector can see of it, in real time.
func TestConformance(t *testing.T) {
	conformance.RunOnly(t, harness(memlock.New(true)), "exclusion")
}

func harness(locks *memlock.Backend) conformance.Harness {
	return conformance.Harness{
		TTL: 500 * time.Millisecond, // nothing is far away
		New: func(conformance.T) driver.Backend {
			life, end := context.WithCancel(context.Background())
			return &connection{locks, life, end}
		},
		Delete: func(_ conformance.T, name string) { locks.Lose(name) },
	}
}
