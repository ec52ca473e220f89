package zookeeper

import (
	"context"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/znode"
)

var (
	_ locker.Inspector = (*Backend)(nil)
	_ locker.Lister    = (*Backend)(nil)
	_ locker.Breaker   = (*Backend)(nil)
	_ locker.Checker   = (*Backend)(nil)
)

// Inspect implements [locker.Inspector]. How long a lock still lasts is not
// known to any client but its holder.
func (b *Backend) Inspect(ctx context.Context, name string) (locker.State, error) {
	s, err := b.session(ctx)
	if err != nil {
		return locker.State{}, err
	}
	st, _, err := s.inspect(ctx, b.dir(name), true)
	return st, err
}

// maxWaiting is how many places of the queue State.Waiting covers.
const maxWaiting = 16

// inspect returns what is known of a lock, and the node of its holder.
func (s *session) inspect(ctx context.Context, dir string, sync bool) (locker.State, string, error) {
	q, err := s.queueOf(ctx, dir, "", sync)
	if err != nil {
		return locker.State{}, "", err
	}
	for i, n := range q.nodes {
		path := dir + "/" + n.name
		label, stat, err := s.label(ctx, path)
		if gone(err) || err == nil && stat.EphemeralOwner == 0 {
			continue // released meanwhile, or nobody's
		}
		if err != nil {
			return locker.State{}, "", err
		}
		var tokens tokens
		if q.raised {
			if tokens, err = s.tokensOf(ctx, dir); err != nil {
				return locker.State{}, "", err
			}
		}
		st := locker.State{Held: true, Label: label, Token: tokens.Of(stat.Czxid), Waiters: len(q.nodes) - 1 - i}
		for _, w := range q.nodes[i+1 : min(len(q.nodes), i+1+maxWaiting)] {
			label, stat, err := s.label(ctx, dir+"/"+w.name)
			switch {
			case gone(err) || err == nil && stat.EphemeralOwner == 0:
			case err != nil:
				return locker.State{}, "", err
			case !slices.Contains(st.Waiting, label):
				st.Waiting = append(st.Waiting, label)
			}
		}
		return st, path, nil
	}
	return locker.State{}, "", nil
}

// label reads the label in a node.
func (s *session) label(ctx context.Context, path string) (string, *zk.Stat, error) {
	var stat *zk.Stat
	text, err := ask(ctx, s, func(c *zk.Conn) (text []byte, err error) {
		text, stat, err = c.Get(path)
		return text, err
	})
	return string(text), stat, err
}

// List implements [locker.Lister]. It asks twice for each lock, and once
// for each of the first who wait.
func (b *Backend) List(
	ctx context.Context, prefix string, found func(name string, st locker.State) error,
) error {
	s, err := b.session(ctx)
	if err != nil {
		return err
	}
	names, err := ask(ctx, s, func(c *zk.Conn) ([]string, error) {
		if _, err := c.Sync(b.prefix); err != nil {
			return nil, err
		}
		names, _, err := c.Children(b.prefix)
		return names, err
	})
	for _, node := range names {
		name, ok := znode.Decode(node)
		if !ok || !strings.HasPrefix(name, prefix) {
			continue
		}
		st, _, err := s.inspect(ctx, b.prefix+"/"+node, false)
		if err == nil && st.Held {
			err = found(name, st)
		}
		if err != nil {
			return err
		}
	}
	return err
}

// Break implements [locker.Breaker]: it removes the node of the holder, who is
// told at once.
func (b *Backend) Break(ctx context.Context, name string) (locker.State, error) {
	s, err := b.session(ctx)
	if err != nil {
		return locker.State{}, err
	}
	st, path, err := s.inspect(ctx, b.dir(name), true)
	if err != nil || !st.Held {
		return locker.State{}, err
	}
	err = s.do(ctx, func(c *zk.Conn) error { return c.Delete(path, -1) })
	if gone(err) {
		return locker.State{}, nil // its holder was faster
	}
	return st, err
}
