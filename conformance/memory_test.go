package conformance_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/golockers/locker"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/memory"
)

// view is one client of a memory.Backend, which is its own service: closing
// the view must not close that for the others.
type view struct {
	*memory.Backend
	closed atomic.Bool
}

func (v *view) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	if v.closed.Load() {
		return locker.Grant{}, locker.ErrClosed
	}
	return v.Backend.Acquire(ctx, req)
}

func (v *view) Close() error {
	v.closed.Store(true)
	return nil
}

func TestMemory(t *testing.T) {
	service := memory.New()
	conformance.Run(t, conformance.Harness{
		New:    func(conformance.T) locker.Backend { return &view{Backend: service} },
		Delete: func(_ conformance.T, name string) { service.Delete(name) },
	})
}
