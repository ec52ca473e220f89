package zookeeper

import (
	"context"
	"sync"

	"github.com/golockers/locker"
)

// A caller who does not wait takes a place like everybody, sees who is before
// it, and removes it. While its node is there it is in the way of those who
// come after, although it never gets the lock: for a session's timeout, if it
// is cut off just then. So who tries again after a refusal, as those do who
// poll, looks first, and takes a place only if there is nobody.

// polled are the locks that were refused lately to callers who do not wait. It
// is a hint: what is missing in it costs a node, what is too much a look.
type polled struct {
	mu   sync.Mutex
	dirs map[string]struct{}
}

// maxPolled bounds what is remembered.
const maxPolled = 4096

func (x *polled) has(dir string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, ok := x.dirs[dir]
	return ok
}

func (x *polled) add(dir string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.dirs == nil || len(x.dirs) >= maxPolled {
		x.dirs = make(map[string]struct{})
	}
	x.dirs[dir] = struct{}{}
}

func (x *polled) remove(dir string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.dirs, dir)
}

// peek returns a *HeldError if the lock was refused to a caller who did not
// wait, and somebody is still in its queue. It looks behind a sync: a server
// that lags behind would show a holder who has left. Between this look and the
// node somebody else may come, who is then before it as ever.
func (p *place) peek(ctx context.Context) error {
	x := &p.s.backend.polled
	if !x.has(p.dir) {
		return nil
	}
	children, err := p.s.children(ctx, p.dir, true)
	if err != nil {
		return err
	}
	// With a node of this very attempt there, it is a repeated request (R11).
	if q := readQueue(children, p.id); q.length > 0 && !q.found {
		return &locker.HeldError{}
	}
	x.remove(p.dir)
	return nil
}

// refuse removes the place of a caller who does not wait.
func (p *place) refuse(ctx context.Context) (locker.Grant, error) {
	p.s.backend.polled.add(p.dir)
	if err := p.remove(ctx); err != nil && !gone(err) {
		return p.leave(&locker.HeldError{})
	}
	return locker.Grant{}, &locker.HeldError{}
}
