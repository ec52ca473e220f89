package etcdguard

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
)

// Counter draws tokens from etcd, for [fencing.Wrap]: each is the revision of a
// write, which is greater than that of every write before it. Make it with
// [NewCounter]. Its methods may be called from many goroutines at once.
//
// Package etcd's leases have such tokens by themselves: a Counter is for locks
// of another service.
type Counter struct{ store }

var (
	_ fencing.Counter = (*Counter)(nil)
	_ locker.Prompt   = (*Counter)(nil)
)

// NewCounter returns a Counter on kv, which stays its caller's, as it is for
// [New]. Options.Keep has no meaning here. It does no I/O. The error matches
// [locker.ErrInvalid].
func NewCounter(kv clientv3.KV, opts *Options) (*Counter, error) {
	s, err := newStore(kv, opts)
	if err != nil {
		return nil, err
	}
	return &Counter{s}, nil
}

// Next implements [fencing.Counter]. Numbers rise over all names, so name is
// only checked; it costs one write of one key.
func (c *Counter) Next(ctx context.Context, name string) (uint64, error) {
	if err := checkName(name); err != nil {
		return 0, err
	}
	var resp *clientv3.PutResponse
	err := c.ask(ctx, func(ctx context.Context) (err error) {
		resp, err = c.kv.Put(ctx, c.keys.counter(), "")
		return err
	})
	if err != nil {
		return 0, c.failure(ctx, name, err)
	}
	return uint64(resp.Header.Revision), nil
}

// Fencing implements [fencing.Counter]: numbers rise unless etcd's data is set
// back, as by restoring a backup without --bump-revision.
func (c *Counter) Fencing() locker.Fencing { return locker.FencingUnlessRewind }

// Prompt implements [locker.Prompt]: Next ends with its context.
func (c *Counter) Prompt() bool { return true }
