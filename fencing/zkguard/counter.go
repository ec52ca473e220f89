package zkguard

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
)

// Counter draws tokens from ZooKeeper, for [fencing.Wrap]: each is the number
// of a transaction (the mzxid of a write), which is greater than that of every
// transaction before it. Make it with [NewCounter]. Its methods may be called
// from many goroutines at once.
//
// Package zookeeper's leases have such tokens by themselves: a Counter is for
// locks of another service.
type Counter struct{ store }

var (
	_ fencing.Counter = (*Counter)(nil)
	_ locker.Prompt   = (*Counter)(nil)
)

// NewCounter returns a Counter on conn, which stays its caller's. It does no
// I/O. The error matches [locker.ErrInvalid].
func NewCounter(conn *zk.Conn, opts *Options) (*Counter, error) {
	s, err := newStore(conn, opts)
	if err != nil {
		return nil, err
	}
	return &Counter{s}, nil
}

// Next implements [fencing.Counter]. Numbers rise over all names, so name is
// only checked; it costs one write of one node. The upper 32 bits are the epoch
// of the leader.
func (c *Counter) Next(ctx context.Context, name string) (uint64, error) {
	if err := checkName(name); err != nil {
		return 0, err
	}
	path := c.counterPath()
	set := func() (*zk.Stat, error) {
		return again(ctx, &c.store, func(conn *zk.Conn) (*zk.Stat, error) { return conn.Set(path, nil, -1) })
	}
	stat, err := set()
	if errors.Is(err, zk.ErrNoNode) {
		if err = c.makeParents(ctx, path+"/"); err == nil {
			stat, err = set()
		}
	}
	if err != nil {
		return 0, c.failure(ctx, name, err)
	}
	return uint64(stat.Mzxid), nil
}

// Fencing implements [fencing.Counter]: numbers rise unless the ensemble's data
// is set back, as by restoring a backup.
func (c *Counter) Fencing() locker.Fencing { return locker.FencingUnlessRewind }

// Prompt implements [locker.Prompt]: Next returns when its context ends.
func (c *Counter) Prompt() bool { return true }
