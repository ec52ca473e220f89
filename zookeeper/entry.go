package zookeeper

import (
	"sync"
	"time"

	"github.com/golockers/locker/driver"
)

// entry is the queue entry of one attempt: a node of one session. It is a
// [driver.Hold] when it was granted, and beside an error when there may be
// something to take back.
type entry struct {
	s      *session
	dir    string // the lock's node
	id     string // what the name of the entry's node begins with, and no other attempt's: the owner, and a mark
	shared bool
	label  string
	lost   func()

	// Of the goroutine that acquires, until the lock is granted.
	asked  time.Time // from before it was known that nobody is in its way
	raised bool      // an earlier holder has raised the tokens
	tokens tokens    // as they were when the lock was granted

	mu      sync.Mutex
	guard   *time.Timer // sets the watch on a holder's node, and marks it
	forget  func()      // has the session not notify a holder of its end any more
	state   state
	room    int    // bytes taken of the session's room for paths
	path    string // of the node, once it is known
	czxid   int64
	sending chan struct{} // closed when the driver is through with the creation
	removal chan struct{} // closed when the last removal that was begun has ended; nil: there was none
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
// In each state the node may turn out to be gone: that is none, again. The end of the
// session ends an entry, in whatever state it is.
type state int

const (
	none    state = iota // there is no node, and none can come
	sent                 // its creation was sent, and not answered
	queued               // it is there
	held                 // and the lock is ours
	leaving              // its deletion was begun
)

// become moves the entry on, if its state may be followed by that one, and returns
// the state before. An entry that has no node any more takes no room, and has nothing
// to be told.
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

// found notes the node of an entry that was sent, or another one that takes its place.
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

// settled reports whether nothing of the entry is in the service, nor can come, as far as that is known without
// asking.
func (e *entry) settled() bool {
	return e.current() == none || e.s.IsGone()
}

// node returns the path of the entry's node.
func (e *entry) node() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.path
}

// gone notes that the node is not there any more, and tells the holder, unless
// it was removed on purpose. It does not block.
func (e *entry) gone() {
	if e.become(none) == held {
		e.lost()
	}
}
