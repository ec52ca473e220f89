package zkguard

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/internal/znode"
)

// store is where a Guard keeps its marks.
type store struct {
	conn  *zk.Conn
	opts  Options
	slots chan struct{} // one for each request under way
}

const (
	defaultPrefix = "/fencing"
	maxPrefixLen  = 256

	// layout is the version of how nodes are laid out below the prefix: part of
	// what two releases of this package have to agree on.
	layout = "/1"

	// inFlight bounds the goroutines that wait for answers, also for those that
	// nobody waits for any more.
	inFlight = 128
)

func newStore(conn *zk.Conn, opts *Options) (store, error) {
	s := store{conn: conn, slots: make(chan struct{}, inFlight)}
	if opts != nil {
		s.opts = *opts
	}
	if conn == nil {
		return s, invalid("the connection is nil")
	}
	o := &s.opts
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if o.ACL = slices.Clone(o.ACL); o.ACL == nil {
		o.ACL = zk.WorldACL(zk.PermAll)
	}
	if err := znode.CheckPrefix(o.Prefix, "/app/fencing", maxPrefixLen); err != nil {
		return s, invalid("Options.Prefix %.300q: %v", o.Prefix, err)
	}
	return s, nil
}

// makeParents creates what is missing above path. The nodes last: a mark has to
// outlive all who use it.
func (s *store) makeParents(ctx context.Context, path string) error {
	var missing []string
	for {
		path = path[:strings.LastIndexByte(path, '/')]
		if path == "" {
			break
		}
		// From below: the right to create may begin anywhere on the way.
		err := s.create(ctx, path)
		if err == nil {
			break
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		missing = append(missing, path)
	}
	for _, path := range slices.Backward(missing) {
		if err := s.create(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// create makes a node unless it is there.
func (s *store) create(ctx context.Context, path string) error {
	_, err := again(ctx, s, func(c *zk.Conn) (string, error) { return c.Create(path, nil, 0, s.opts.ACL) })
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}
