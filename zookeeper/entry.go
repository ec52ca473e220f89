package zookeeper

import (
	"sync"
	"time"

	"github.com/golockers/locker/driver"
)

// entry is the queue entry of one attempt: a node of one session. It is the
// [driver.Hold] of a grant, and that of an error if there may be something to
// take back.
type entry struct {
	s      *session
	dir    string // the lock's node
	id     string // the owner and a mark: the name of the entry's node begins with it, and no other attempt's does
	shared bool
	label  string
	lost   func()

	// These belong to the goroutine that acquires, until the lock is granted.
	asked  time.Time // before the request that found nobody in the way
	raised bool      // an earlier holder has raised the tokens
	tokens tokens    // as they were when the lock was granted

	mu      sync.Mutex
	guard   *time.Timer // sets the watch on a holder's node, and marks it
	forget  func()      // the session no longer notifies this holder of its end
	state   state
	room    int    // bytes taken of the session's room for paths
	path    string // of the node, once it is known
	czxid   int64
	sending chan struct{} // closed when the driver has finished with the creation; nil: it has not begun
	removal chan struct{} // closed when the latest removal has ended; nil: there was none
	void    bool          // no creation may be sent any more
}

var (
	_ driver.Hold        = (*entry)(nil)
	_ driver.Aser        = (*entry)(nil)
	_ driver.TokenRaiser = (*entry)(nil)
)

// state is what became of an entry's node:
//
//	none ──> sent ──> queued ──> held ──> leaving
//	                    └───────────────────^
//
// In every state, the node may turn out to be gone: then it is none again. The end of
// the session ends an entry whatever its state.
type state int

const (
	none    state = iota // there is no node, and none can come
	sent                 // its creation was sent, and not answered
	queued               // it is there
	held                 // and the lock is ours
	leaving              // its deletion was begun
)

// become moves the entry to a state, if the drawing allows that, and returns
// the state before. An entry that has no node any more takes no room, and is not
// notified of anything.
func (e *entry) become(to state) (was state) {
	e.mu.Lock()
	defer e.mu.Unlock()
	was = e.state
	if to == none || to == was+1 || to == leaving && was == queued {
		e.state = to
	}
	if e.state == none {
		if e.room > 0 {
			e.s.leave(e.room)
			e.room = 0
		}
		if e.forget != nil {
			e.forget()
		}
	}
	return was
}

// found notes the node of an entry whose creation was sent, or another node that takes its place.
func (e *entry) found(path string, czxid int64) {
	e.become(queued)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.path, e.czxid = path, czxid
}

// current returns the entry's state.
func (e *entry) current() state {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state
}

// settled reports whether it is known, without asking, that nothing of the entry is in the service or can still
// arrive.
func (e *entry) settled() bool {
	return e.current() == none || e.s.IsGone()
}

// node returns the path of the entry's node.
func (e *entry) node() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.path
}

// gone notes that the node is not there any more, and notifies the holder, unless
// the node was removed on purpose. It does not block.
func (e *entry) gone() {
	if e.become(none) == held {
		e.lost()
	}
}
