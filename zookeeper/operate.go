package zookeeper

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/queue"
)

// Inspect implements [driver.Operator]. Only the holder knows how long a lock still
// lasts. Since when it has been held is known if nobody has come or left since it was
// granted, or once it has been held for a second.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	s, err := b.join(ctx, 0)
	if err != nil {
		return driver.State{}, err
	}
	defer s.leave(0)
	return s.inspect(ctx, name, b.dir(name), true)
}

// maxWaiting is how many places of the queue State.Waiting and State.Sharing cover.
const maxWaiting = 16

// head is who holds a lock, or shares it, and who waits.
type head struct {
	have, wait []node
	first      data // the node of the first holder
	since      time.Time
	raised     bool // see nodes
}

func (s *session) headOf(ctx context.Context, dir string, sync bool) (head, error) {
	q, err := s.queueOf(ctx, dir, "", sync)
	if err != nil {
		return head{}, err
	}
	for i, n := range q.all {
		first, err := s.get(ctx, dir+"/"+n.name)
		if gone(err) {
			continue // it was released meanwhile
		}
		if err != nil {
			return head{}, err
		}
		h := head{first: first, raised: q.raised}
		h.have, h.wait = queue.Split(q.all[i:], node.isShared)
		switch stat := first.stat; {
		case stat.Version > 0: // its holder has marked it
			h.since = time.UnixMilli(stat.Mtime).Add(-markAfter)
		case i == 0 && stat.Czxid == q.last: // nobody has come or left since it came
			h.since = time.UnixMilli(stat.Ctime)
		}
		return h, nil
	}
	return head{}, nil
}

// holderForm is the form of State.Holder: the czxids of the first and the last that hold the lock.
const holderForm = "zookeeper %d-%d"

// inspect returns what is known about a lock.
func (s *session) inspect(ctx context.Context, name, dir string, sync bool) (driver.State, error) {
	h, err := s.headOf(ctx, dir, sync)
	if err != nil || len(h.have) == 0 {
		return driver.State{Name: name}, err
	}
	oldest := h.first.stat.Czxid
	newest := oldest
	st := driver.State{Name: name, Held: true, Label: h.first.text, Since: h.since, Waiters: len(h.wait)}
	if h.have[0].isShared() {
		st.Sharers = len(h.have)
		if st.Sharing, err = s.labels(ctx, dir, h.have); err == nil {
			var last data
			if last, err = s.get(ctx, dir+"/"+h.have[len(h.have)-1].name); err == nil {
				newest = max(newest, last.stat.Czxid)
			} else if gone(err) {
				err = nil
			}
		}
	} else {
		var tokens tokens
		if h.raised {
			tokens, err = s.tokensOf(ctx, dir)
		}
		st.Token = tokens.Of(oldest)
	}
	if err == nil {
		st.Waiting, err = s.labels(ctx, dir, h.wait)
	}
	if err != nil {
		return driver.State{}, err
	}
	st.Holder = fmt.Sprintf(holderForm, oldest, newest)
	return st, nil
}

// labels returns the labels of the first nodes, without duplicates.
func (s *session) labels(ctx context.Context, dir string, nodes []node) (all []string, err error) {
	for _, n := range nodes[:min(len(nodes), maxWaiting)] {
		one, err := s.get(ctx, dir+"/"+n.name)
		switch {
		case gone(err):
		case err != nil:
			return nil, err
		case !slices.Contains(all, one.text):
			all = append(all, one.text)
		}
	}
	return all, nil
}

// listedAtOnce is how many locks List inspects at the same time.
const listedAtOnce = 32

// List implements [driver.Operator]. It takes two requests for each lock, and one for
// each of its first waiters.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	return func(yield func(driver.State, error) bool) {
		s, err := b.join(ctx, 0)
		if err != nil {
			yield(driver.State{}, err)
			return
		}
		defer s.leave(0)
		nodes, err := s.children(ctx, b.prefix, true)
		if err != nil {
			yield(driver.State{}, err)
			return
		}
		var names []string
		for _, node := range nodes.names {
			if name, ok := decode(node); ok && strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
		for chunk := range slices.Chunk(names, listedAtOnce) {
			states, errs := make([]driver.State, len(chunk)), make([]error, len(chunk))
			var all sync.WaitGroup
			for i, name := range chunk {
				all.Go(func() { states[i], errs[i] = s.inspect(ctx, name, b.dir(name), false) })
			}
			all.Wait()
			for i, st := range states {
				if errs[i] != nil {
					yield(driver.State{}, errs[i])
					return
				}
				if st.Held && !yield(st, nil) {
					return
				}
			}
		}
	}
}

// Break implements [driver.Operator]. It takes a lock from the holder that inspect has named, or from everybody that
// shares it with one of those that inspect saw. They are notified at once. A copy of this request finds other holders,
// or none. The oldest sharer goes last: as long as one of those seen is there, they are the same generation. A sharer
// that comes meanwhile stays.
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
	dir := b.dir(st.Name)
	h, err := s.headOf(ctx, dir, true)
	if err != nil || len(h.have) == 0 || h.first.stat.Czxid < first || h.first.stat.Czxid > last ||
		first != last && !h.have[0].isShared() {
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
