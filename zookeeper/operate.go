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
	s, err := b.join(ctx, 0)
	if err != nil {
		return locker.State{}, err
	}
	defer s.leave(0)
	st, _, err := s.inspect(ctx, b.dir(name), true)
	return st, err
}

// maxWaiting is how many places of the queue State.Waiting covers, and State.Sharing.
const maxWaiting = 16

// inspect returns what is known of a lock, and the nodes of its holder or its sharers.
func (s *session) inspect(ctx context.Context, dir string, sync bool) (locker.State, []node, error) {
	q, err := s.queueOf(ctx, dir, "", sync)
	if err != nil {
		return locker.State{}, nil, err
	}
	for i, n := range q.nodes {
		path := dir + "/" + n.name
		label, stat, err := s.label(ctx, path)
		if gone(err) || err == nil && stat.EphemeralOwner == 0 {
			continue // released meanwhile, or nobody's
		}
		if err != nil {
			return locker.State{}, nil, err
		}
		have := 1
		for n.shared && i+have < len(q.nodes) && q.nodes[i+have].shared {
			have++
		}
		held, waiting := q.nodes[i:i+have], q.nodes[i+have:]
		st := locker.State{Held: true, Label: label, Waiters: len(waiting)}
		if n.shared {
			st.Sharers = have
			st.Sharing, err = s.labels(ctx, dir, held)
		} else {
			var tokens tokens
			if q.raised {
				tokens, err = s.tokensOf(ctx, dir)
			}
			st.Token = tokens.Of(stat.Czxid)
		}
		if err == nil {
			st.Waiting, err = s.labels(ctx, dir, waiting)
		}
		if err != nil {
			return locker.State{}, nil, err
		}
		return st, held, nil
	}
	return locker.State{}, nil, nil
}

// labels reads the labels of the first nodes, each once.
func (s *session) labels(ctx context.Context, dir string, nodes []node) (all []string, err error) {
	for _, n := range nodes[:min(len(nodes), maxWaiting)] {
		label, stat, err := s.label(ctx, dir+"/"+n.name)
		switch {
		case gone(err) || err == nil && stat.EphemeralOwner == 0:
		case err != nil:
			return nil, err
		case !slices.Contains(all, label):
			all = append(all, label)
		}
	}
	return all, nil
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
	s, err := b.join(ctx, 0)
	if err != nil {
		return err
	}
	defer s.leave(0)
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

// Break implements [locker.Breaker]: it removes the node of the holder, or of every
// sharer, who is told at once. A sharer that comes meanwhile stays.
func (b *Backend) Break(ctx context.Context, name string) (locker.State, error) {
	s, err := b.join(ctx, 0)
	if err != nil {
		return locker.State{}, err
	}
	defer s.leave(0)
	st, held, err := s.inspect(ctx, b.dir(name), true)
	if err != nil || !st.Held {
		return locker.State{}, err
	}
	broken := false
	for _, n := range held {
		err = s.do(ctx, func(c *zk.Conn) error { return c.Delete(b.dir(name)+"/"+n.name, -1) })
		if err != nil && !gone(err) {
			return st, err
		}
		broken = broken || err == nil
	}
	if !broken {
		return locker.State{}, nil // its holder was faster
	}
	return st, nil
}
