package zkguard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/znode"
)

// Options are the settings of a [Guard]. The zero value, or nil, means the defaults.
type Options struct {
	// Prefix is the node above all nodes of the guard, such as "/app/fencing". It
	// is created if it is missing. Guards with the same prefix share their marks.
	// "": "/fencing".
	Prefix string

	// ACL is the access control list of all nodes that the guard creates. nil:
	// everybody has all rights. All guards that share marks need the rights to read
	// and write them and to create them in their parent. Nobody else should have
	// more than the right to read. zk.AuthACL(zk.PermAll) is for connections that
	// all have the same credentials.
	ACL []zk.ACL

	_ struct{}
}

const (
	defaultPrefix = "/fencing"
	maxPrefixLen  = 256

	// layout is the version of the node layout below the prefix, on which two
	// releases of this package have to agree.
	layout = "/1"

	// inFlight bounds the goroutines that wait for answers. It counts requests that
	// were given up, too.
	inFlight = 128
)

// Guard lets transactions of a ZooKeeper happen only if no higher token was
// accepted for their resource. Make it with [New]. Its methods may be called
// from many goroutines at once. A Guard need not be closed: its goroutines end with
// the answers to their requests, or with the connection.
type Guard struct {
	conn  *zk.Conn
	opts  Options
	slots chan struct{} // one element for each request under way
}

// New returns a Guard on conn, which the caller still owns. New does no I/O. Its
// error matches [locker.ErrInvalid].
func New(conn *zk.Conn, opts *Options) (*Guard, error) {
	if conn == nil {
		return nil, invalid("the connection is nil")
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if o.ACL = slices.Clone(o.ACL); o.ACL == nil {
		o.ACL = zk.WorldACL(zk.PermAll)
	}
	if err := znode.CheckPrefix(o.Prefix, "/app/fencing", maxPrefixLen); err != nil {
		return nil, invalid("Options.Prefix %.300q: %v", o.Prefix, err)
	}
	return &Guard{conn: conn, opts: o, slots: make(chan struct{}, inFlight)}, nil
}

// Multi carries out ops in one transaction if token is not lower than the mark of
// resource, and moves the mark in the same transaction. ops have the types that the
// driver's Multi takes. Multi copies them, so the caller may use them again when it
// returns. ctx bounds the call.
//
// If the token is too low, the error is a [*fencing.StaleError] and nothing is
// written. Without a token it matches [fencing.ErrMissing]. If one of ops fails,
// nothing is written and the mark stays; the error is an [*OpError] that matches the
// driver's error. With an error that matches [fencing.ErrUnknown], either everything
// was written or nothing; after any other error, nothing was. If ZooKeeper could not
// be asked, the error matches [locker.ErrUnavailable].
//
// The results are those of ops, in their order. They are also returned beside an
// OpError.
//
// A call costs a read, from the server that conn is connected to, and a transaction;
// both are repeated for each holder that writes in between. Node names and data
// together have to be smaller than the servers' jute.maxbuffer, which is 1 MB by
// default: a server closes the connection if they are larger.
func (g *Guard) Multi(
	ctx context.Context, resource string, token fencing.Token, ops ...any,
) ([]zk.MultiResponse, error) {
	if err := fencing.CheckName(resource); err != nil {
		return nil, fmt.Errorf("zkguard: %w", err)
	}
	if err := token.Check(); err != nil {
		return nil, fencing.Admit(resource, token, 0)
	}
	sent, err := g.checked(ops)
	if err != nil {
		return nil, err
	}
	path := g.markPath(resource)
	for round := 0; ; round++ {
		mark, version, err := g.read(ctx, resource, path)
		if err != nil {
			return nil, err
		}
		// A server that is behind may show an old mark. Marks only rise: if the old one
		// is too high, so is the new one.
		if err := fencing.Admit(resource, token, mark); err != nil {
			return nil, err
		}
		own := g.move(path, token, mark, version)
		results, err := ask(ctx, g, func(c *zk.Conn) ([]zk.MultiResponse, error) {
			results, err := c.Multi(slices.Concat(own, sent)...)
			if firstFailed(results) >= 0 {
				err = nil // it is an answer: read from the results
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
			// Another holder has written since. Its transaction precedes this refusal, and
			// the server has seen it before it answers: the next read is newer.
			err = pause(ctx, round)
		case errors.Is(err, zk.ErrNoNode) && version == none:
			err = g.makeParents(ctx, path)
		case errors.Is(err, zk.ErrNoNode):
			err = pause(ctx, round) // somebody has deleted the mark
		}
		if err != nil {
			return nil, g.failure(ctx, resource, err)
		}
	}
}

// Raise moves the mark of resource up to token and writes nothing. After it has
// returned, no write with a lower token can happen. A holder calls it before it
// reads the state on which its write depends. Errors are those of [Guard.Multi].
func (g *Guard) Raise(ctx context.Context, resource string, token fencing.Token) error {
	_, err := g.Multi(ctx, resource, token)
	return err
}

// firstFailed returns the index of the operation that made the transaction fail, or
// -1. Operations before it have no error; the errors of those after it say nothing.
func firstFailed(results []zk.MultiResponse) int {
	return slices.IndexFunc(results, func(r zk.MultiResponse) bool { return r.Error != nil })
}

// move returns the operations that make token the mark if the mark has not changed
// since it was read.
func (g *Guard) move(path string, token, mark fencing.Token, version int32) []any {
	data := []byte(token.String())
	switch {
	case version == none:
		return []any{&zk.CreateRequest{Path: path, Data: data, Acl: g.opts.ACL}}
	case token == mark:
		// Not written again, so that writers with the same token do not conflict.
		return []any{&zk.CheckVersionRequest{Path: path, Version: version}}
	}
	return []any{&zk.SetDataRequest{Path: path, Data: data, Version: version}}
}

// none is the version of a node that does not exist. It is never sent: ZooKeeper
// takes it for any version.
const none = -1

// read returns a mark and the version of its node. Its errors are for the caller of
// the Guard.
func (g *Guard) read(
	ctx context.Context, resource, path string,
) (mark fencing.Token, version int32, err error) {
	type node struct {
		data []byte
		stat *zk.Stat
	}
	n, err := again(ctx, g, func(c *zk.Conn) (node, error) {
		data, stat, err := c.Get(path)
		return node{data, stat}, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return 0, none, nil
	case err != nil:
		return 0, 0, g.failure(ctx, resource, err)
	case n.stat.Version == none:
		return 0, 0, fmt.Errorf("zkguard: the node %s was written 2³² times and has version -1, "+
			"which cannot be compared: set it once more, to its own data, while nobody writes", path)
	case len(n.data) == 0:
		return 0, n.stat.Version, nil // somebody made it beforehand, for its ACL perhaps
	}
	if mark, err = fencing.Parse(string(n.data)); err != nil {
		return 0, 0, fmt.Errorf("zkguard: the mark in node %s is %.40q, which no guard has written: "+
			"find out who wrote it, and set it to the highest token", path, n.data)
	}
	return mark, n.stat.Version, nil
}

// Mark returns the highest token that was accepted for resource, as far as the
// server that conn is connected to knows; 0 if there is none.
func (g *Guard) Mark(ctx context.Context, resource string) (fencing.Token, error) {
	if err := fencing.CheckName(resource); err != nil {
		return 0, fmt.Errorf("zkguard: %w", err)
	}
	mark, _, err := g.read(ctx, resource, g.markPath(resource))
	return mark, err
}

// makeParents creates the missing nodes above path. They are not ephemeral: a mark
// has to outlive all its users.
func (g *Guard) makeParents(ctx context.Context, path string) error {
	var missing []string
	for {
		path = path[:strings.LastIndexByte(path, '/')]
		if path == "" {
			break
		}
		// From below: the user may have the right to create only far down.
		err := g.create(ctx, path)
		if err == nil {
			break
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		missing = append(missing, path)
	}
	for _, path := range slices.Backward(missing) {
		if err := g.create(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// create makes a node unless it exists.
func (g *Guard) create(ctx context.Context, path string) error {
	_, err := again(ctx, g, func(c *zk.Conn) (string, error) { return c.Create(path, nil, 0, g.opts.ACL) })
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

// pause waits before another round, but not before the first few: in each round,
// one of the competitors succeeds.
func pause(ctx context.Context, round int) error {
	const few = 3
	if round < few {
		return nil
	}
	if err := clock.Sleep(ctx, clock.UpTo(time.Duration(min(round, 50))*time.Millisecond)); err != nil {
		return &unansweredError{ctx.Err(), false}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("zkguard: %w: %s", locker.ErrInvalid, fmt.Sprintf(format, args...))
}
