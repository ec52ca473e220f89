package zkguard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
)

// Options are the settings of a [Guard]. The zero value, or
// nil, means the defaults.
type Options struct {
	// Prefix is the node under which the guard's own nodes are, as in
	// "/app/fencing". It is created where it is missing. Guards share their marks
	// if their prefixes are equal. "": "/fencing".
	Prefix string

	// ACL is that of all nodes that the guard creates. nil: everybody has all
	// rights. All who use the same marks need to read and write them, and to
	// create them in their parent; nobody else should have more than the right to
	// read. zk.AuthACL(zk.PermAll) is for connections that all have the same
	// credentials.
	ACL []zk.ACL

	_ struct{}
}

// Guard lets transactions of a ZooKeeper happen only if no higher token was
// accepted for their resource. Make it with [New]. Its methods may be called
// from many goroutines at once. It needs no end: its goroutines end with the
// answers to the requests, or with the connection.
type Guard struct{ store }

// New returns a Guard on conn, which stays its caller's. New does no I/O. The
// error matches [locker.ErrInvalid].
func New(conn *zk.Conn, opts *Options) (*Guard, error) {
	s, err := newStore(conn, opts)
	if err != nil {
		return nil, err
	}
	return &Guard{s}, nil
}

// Multi carries out ops in one transaction, as the driver's Multi does, if
// token is not lower than the mark of resource, and moves the mark in the same
// transaction. ops are of the types that the driver's Multi takes. They are
// copied, and the caller's own when Multi returns. ctx bounds the call.
//
// A token that is too low is a [*fencing.StaleError], and nothing is written.
// No token is [fencing.ErrMissing]. If one of ops cannot be carried out,
// nothing is written and the mark stays; the error is an [*OpError] that
// matches the driver's. An error that matches [fencing.ErrUnknown] leaves open whether
// everything was written or nothing; after any other, nothing was. If ZooKeeper
// could not be asked, the error matches [locker.ErrUnavailable].
//
// The results are those of ops alone, in their order; they are returned with an
// OpError, too.
//
// A call costs a read, from the server that conn is connected to, and a
// transaction; both once more for each holder that got in between. Node names
// and data together have to be smaller than the servers' jute.maxbuffer, 1 MB
// if it is not set: a server closes the connection on what is larger.
func (g *Guard) Multi(ctx context.Context, resource string, token fencing.Token, ops ...any) ([]zk.MultiResponse, error) {
	if err := checkName(resource); err != nil {
		return nil, err
	}
	if err := token.Check(); err != nil {
		return nil, fencing.Admit(resource, token, 0)
	}
	if err := g.checkOps(ops); err != nil {
		return nil, err
	}
	sent := make([]any, len(ops))
	for i, op := range ops {
		sent[i] = clone(op)
	}
	path := g.markPath(resource)
	for attempt := 0; ; attempt++ {
		mark, version, err := g.read(ctx, path)
		if err != nil {
			return nil, g.failure(ctx, resource, err)
		}
		// What is read may be old, from a server that is behind. Marks only rise: if
		// the old one is too high already, the new one is, too.
		if err := fencing.Admit(resource, token, mark); err != nil {
			return nil, err
		}
		own := g.move(path, token, mark, version)
		results, err := ask(ctx, &g.store, func(c *zk.Conn) ([]zk.MultiResponse, error) {
			results, err := c.Multi(slices.Concat(own, sent)...)
			if firstFailed(results) >= 0 {
				err = nil // it is an answer
			}
			return results, err
		})
		if err != nil {
			return nil, g.failure(ctx, resource, err)
		}
		failed := firstFailed(results)
		switch {
		case failed < 0:
			return results[len(own):], nil
		case failed >= len(own):
			i := failed - len(own)
			return results[len(own):], &OpError{Resource: resource, Index: i, Op: ops[i], Err: results[failed].Error}
		}
		switch err = results[failed].Error; {
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists):
			// Another was here since. The refusal is a transaction, too, which the
			// server has seen before it answers: what is read next is newer.
			err = pause(ctx, attempt)
		case errors.Is(err, zk.ErrNoNode) && version == none:
			err = g.makeParents(ctx, path)
		case errors.Is(err, zk.ErrNoNode):
			err = pause(ctx, attempt) // somebody has deleted it
		}
		if err != nil {
			return nil, g.failure(ctx, resource, err)
		}
	}
}

// Raise moves the mark of resource up to token and writes nothing. When it has
// returned, no write with a lower token can happen any more: a holder calls it
// before it reads what its write depends on. The error is as that of [Guard.Multi].
func (g *Guard) Raise(ctx context.Context, resource string, token fencing.Token) error {
	_, err := g.Multi(ctx, resource, token)
	return err
}

// firstFailed returns the index of the operation that made the transaction
// fail; -1 if there is none. Those before it have no error, those behind it one
// that says nothing.
func firstFailed(results []zk.MultiResponse) int {
	return slices.IndexFunc(results, func(r zk.MultiResponse) bool { return r.Error != nil })
}

// move returns the operations that make token the mark, if the mark is what it
// was when it was read.
func (g *Guard) move(path string, token, mark fencing.Token, version int32) []any {
	data := []byte(token.String())
	switch {
	case version == none:
		return []any{&zk.CreateRequest{Path: path, Data: data, Acl: g.opts.ACL}}
	case token == mark:
		// Not written again: writers of one holder are not in each other's way.
		return []any{&zk.CheckVersionRequest{Path: path, Version: version}}
	}
	return []any{&zk.SetDataRequest{Path: path, Data: data, Version: version}}
}

// none is the version of a node that is not there. As a version to compare, it
// would be any: it is never sent.
const none = -1

// read returns a mark and the version of its node.
func (g *Guard) read(ctx context.Context, path string) (mark fencing.Token, version int32, err error) {
	type node struct {
		data []byte
		stat *zk.Stat
	}
	n, err := again(ctx, &g.store, func(c *zk.Conn) (node, error) {
		data, stat, err := c.Get(path)
		return node{data, stat}, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return 0, none, nil
	case err != nil:
		return 0, 0, err
	case n.stat.Version == none:
		return 0, 0, &refusal{fmt.Errorf("zkguard: the node %s was written 2³² times and has version -1, which cannot be compared: set it once more, to its own data, while nobody writes", path)}
	case len(n.data) == 0:
		return 0, n.stat.Version, nil // made beforehand, for its ACL perhaps
	}
	if mark, err = fencing.Parse(string(n.data)); err != nil {
		return 0, 0, &refusal{fmt.Errorf("zkguard: the mark in node %s is %.40q, which no guard has written: find out who did, and set it to the highest token", path, n.data)}
	}
	return mark, n.stat.Version, nil
}

// Mark returns the highest token that was accepted for resource, as far as the
// server that conn is connected to knows; 0 if there is none.
func (g *Guard) Mark(ctx context.Context, resource string) (fencing.Token, error) {
	if err := checkName(resource); err != nil {
		return 0, err
	}
	mark, _, err := g.read(ctx, g.markPath(resource))
	return mark, g.failure(ctx, resource, err)
}

// pause waits before another attempt: not at all before the first few, since
// somebody gets through each time.
func pause(ctx context.Context, attempt int) error {
	const few = 3
	if attempt < few {
		return nil
	}
	timer := time.NewTimer(rand.N(time.Duration(min(attempt, 50)) * time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return &unsentError{ctx.Err()}
	}
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("zkguard: %w: %s", locker.ErrInvalid, fmt.Sprintf(format, args...))
}
