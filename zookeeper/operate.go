package zookeeper

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/driver"
)

var (
	_ driver.Operator = (*Backend)(nil)
	_ driver.Checker  = (*Backend)(nil)
)

// Inspect implements [driver.Operator]. How long a lock still lasts is not
// known to any client but its holder.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	s, err := b.join(ctx, 0)
	if err != nil {
		return driver.State{}, err
	}
	defer s.leave(0)
	return s.inspect(ctx, name, b.dir(name), true)
}

// maxWaiting is how many places of the queue State.Waiting covers, and State.Sharing.
const maxWaiting = 16

// head is who has a lock, or shares it, and who waits.
type head struct {
	have, wait []node
	label      string // of the first that has it
	czxid      int64  // the same
	raised     bool   // see queue
}

func (s *session) headOf(ctx context.Context, dir string, sync bool) (head, error) {
	q, err := s.queueOf(ctx, dir, "", sync)
	if err != nil {
		return head{}, err
	}
	for i, n := range q.nodes {
		label, stat, err := s.get(ctx, dir+"/"+n.name)
		if gone(err) {
			continue // released meanwhile
		}
		if err != nil {
			return head{}, err
		}
		end := i + 1
		for n.shared && end < len(q.nodes) && q.nodes[end].shared {
			end++
		}
		return head{q.nodes[i:end], q.nodes[end:], label, stat.Czxid, q.raised}, nil
	}
	return head{}, nil
}

// holderForm is that of State.Holder: the czxids of the first and the last that have the lock.
const holderForm = "zookeeper %d-%d"

// inspect returns what is known of a lock.
func (s *session) inspect(ctx context.Context, name, dir string, sync bool) (driver.State, error) {
	h, err := s.headOf(ctx, dir, sync)
	if err != nil || len(h.have) == 0 {
		return driver.State{Name: name}, err
	}
	st := driver.State{Name: name, Held: true, Label: h.label, Waiters: len(h.wait)}
	newest := h.czxid
	if h.have[0].shared {
		st.Sharers = len(h.have)
		if st.Sharing, err = s.labels(ctx, dir, h.have); err == nil {
			var last *zk.Stat
			if _, last, err = s.get(ctx, dir+"/"+h.have[len(h.have)-1].name); err == nil {
				newest = max(newest, last.Czxid)
			} else if gone(err) {
				err = nil
			}
		}
	} else {
		var tokens tokens
		if h.raised {
			tokens, err = s.tokensOf(ctx, dir)
		}
		st.Token = tokens.Of(h.czxid)
	}
	if err == nil {
		st.Waiting, err = s.labels(ctx, dir, h.wait)
	}
	if err != nil {
		return driver.State{}, err
	}
	st.Holder = fmt.Sprintf(holderForm, h.czxid, newest)
	return st, nil
}

// labels reads the labels of the first nodes, each once.
func (s *session) labels(ctx context.Context, dir string, nodes []node) (all []string, err error) {
	for _, n := range nodes[:min(len(nodes), maxWaiting)] {
		label, _, err := s.get(ctx, dir+"/"+n.name)
		switch {
		case gone(err):
		case err != nil:
			return nil, err
		case !slices.Contains(all, label):
			all = append(all, label)
		}
	}
	return all, nil
}

// List implements [driver.Operator]. It asks twice for each lock, and once
// for each of the first who wait.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	return func(yield func(driver.State, error) bool) {
		s, err := b.join(ctx, 0)
		if err != nil {
			yield(driver.State{}, err)
			return
		}
		defer s.leave(0)
		names, err := s.children(ctx, b.prefix, true)
		for _, node := range names {
			name, ok := decode(node)
			if !ok || !strings.HasPrefix(name, prefix) {
				continue
			}
			var st driver.State
			if st, err = s.inspect(ctx, name, b.prefix+"/"+node, false); err != nil {
				break
			}
			if st.Held && !yield(st, nil) {
				return
			}
		}
		if err != nil {
			yield(driver.State{}, err)
		}
	}
}

// Break implements [driver.Operator].
func (b *Backend) Break(ctx context.Context, st driver.State) error {
	var first, last int64
	_, _ = fmt.Sscanf(st.Holder, holderForm, &first, &last)
	if st.Holder != "" && st.Holder != fmt.Sprintf(holderForm, first, last) {
		return invalid("%q is no Holder of this backend", st.Holder)
	}
	s, err := b.join(ctx, 0)
	if err != nil {
		return err
	}
	defer s.leave(0)
	return s.remove(ctx, b.dir(st.Name), first, last)
}

// remove takes a lock from the holder that inspect has named, or from all that share it with one who did then:
// they are told at once. A copy of it finds others, or nobody. The oldest sharers go last: as long as one is
// there, they are the same. One that comes meanwhile stays.
func (s *session) remove(ctx context.Context, dir string, first, last int64) error {
	h, err := s.headOf(ctx, dir, true)
	if err != nil || len(h.have) == 0 || h.czxid < first || h.czxid > last || first != last && !h.have[0].shared {
		return err
	}
	for _, n := range slices.Backward(h.have) {
		err := s.do(ctx, func(c *zk.Conn) error { return c.Delete(dir+"/"+n.name, -1) })
		if err != nil && !gone(err) {
			return err
		}
	}
	return nil
}
