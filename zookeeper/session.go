package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker"
)

// session is one ZooKeeper session: all that the backend does at a time goes
// through one. It is made once, and is over once: the driver, which would go
// on with a new session under the same connection, is given no server any
// more (see dial), so that nothing asked in one session is ever done in the
// next. Whoever needs a session after that gets a new one from the backend.
type session struct {
	backend *Backend
	conn    *zk.Conn
	events  <-chan zk.Event // closed by the driver when it has ended
	node    string          // the node that is written to by the heartbeat
	watches watches
	slots   chan struct{} // bounds the calls under way
	jobs    chan func()   // to goroutines that have nothing to do
	idle    atomic.Int32  // how many they are

	ctx   context.Context // ends with the session
	stop  context.CancelFunc
	ready chan struct{} // closed when the session can be used
	dead  chan struct{} // closed when it is over
	hurry chan struct{} // holds an element if somebody waits for a connection

	goroutines sync.WaitGroup

	mu       sync.Mutex
	err      error         // why it is over
	changed  chan struct{} // closed, and made anew, at each change of what follows
	link     *link         // the connection that has taken up the session; nil: there is none
	latest   *link         // the connection made last
	since    time.Time     // when link was lost; zero while there is one
	id       int64
	timeout  time.Duration    // as granted
	failures map[string]error // by server, since the last success
	outage   error            // set when every server has failed, until one has not
	begun    int              // rounds through all servers that have begun
	failed   int              // the last one that failed
	proof    proof
	refused  error               // why the last heartbeat was refused; nil: it was not
	told     map[*place]struct{} // holders, to be told of the end
	fresh    []*place            // holders whose nodes are not watched yet
	czxids   map[string]int64    // of nodes whose creation was just answered
}

// maxCalls bounds the calls of one session that are under way at once, those
// that their callers have given up included.
const maxCalls = 512

// newSession begins a session. It does not wait for it.
func newSession(b *Backend) (*session, error) {
	s := &session{
		backend: b,
		node:    b.prefix + "/" + beatMark + newID(),
		slots:   make(chan struct{}, maxCalls),
		jobs:    make(chan func()),
		ready:   make(chan struct{}),
		dead:    make(chan struct{}),
		hurry:   make(chan struct{}, 1),
		changed: make(chan struct{}),
		since:   time.Now(),
		told:    make(map[*place]struct{}),
		czxids:  make(map[string]int64),
	}
	s.watches.session = s
	s.ctx, s.stop = context.WithCancel(context.Background())
	conn, events, err := zk.Connect(b.servers, b.opts.SessionTimeout,
		zk.WithDialer(s.dial),
		zk.WithHostProvider(newHosts(s, b.servers)),
		zk.WithEventCallback(s.event),
		zk.WithLogger(driverLog{b.opts.Logger}),
		zk.WithMaxConnBufferSize(bufferSize),
		zk.WithMaxBufferSize(maxAnswer),
	)
	if err != nil {
		s.stop()
		return nil, err
	}
	s.conn, s.events = conn, events
	go s.run()
	return s, nil
}

// What is sent is small, but for the watches that are set again on a new
// connection, in packets of 128 KiB; answers list the children of a node.
const (
	bufferSize = 256 << 10
	maxAnswer  = 64 << 20
)

// event is called by the driver, and must not block.
func (s *session) event(e zk.Event) {
	switch {
	case e.Type == zk.EventSession && e.State == zk.StateExpired:
		s.end(errExpired)
	case e.Type == zk.EventSession && e.State == zk.StateDisconnected:
		s.disconnected()
	case e.Type > 0:
		s.watches.fire(e.Path, e.Type)
	}
}

var errExpired = errors.New("the session has expired")

// change wakes those who wait for one. s.mu is held.
func (s *session) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// end makes the session over, once. It does not block.
func (s *session) end(cause error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = cause
	told := s.told
	s.told = nil
	close(s.dead)
	s.change()
	s.mu.Unlock()
	s.stop()
	for p := range told {
		p.gone() // R5: the engine has known by its deadline; this is for those who close early
	}
}

// closeDriver says goodbye to the server, which then removes all nodes of the
// session, and returns when the driver has ended.
func (s *session) closeDriver() {
	s.conn.Close()
	s.mu.Lock()
	l := s.latest
	s.mu.Unlock()
	if l != nil {
		l.abort() // ends a greeting under way
	}
	for range s.events {
	}
}

func (s *session) isDead() bool {
	select {
	case <-s.dead:
		return true
	default:
		return false
	}
}

// over is why the session is over, for callers.
func (s *session) over() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(s.err, locker.ErrClosed) || s.err == nil {
		return s.err
	}
	var r *refusal
	if errors.As(s.err, &r) {
		return s.err
	}
	return fmt.Errorf("zookeeper: %w: %w", s.err, locker.ErrUnavailable)
}

// granted returns the session's ID and timeout, once it has been taken up.
func (s *session) granted() (id int64, timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id, s.timeout
}

// tell arranges for p to be told when the session ends. It returns false if it has.
func (s *session) tell(p *place) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false
	}
	s.told[p] = struct{}{}
	return true
}

// created notes the czxid of a node, for czxid.
func (s *session) created(path string, czxid int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.czxids[path] = czxid
}

// czxid returns what created noted, once; 0 if it did not.
func (s *session) czxid(path string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	czxid := s.czxids[path]
	delete(s.czxids, path)
	return czxid
}

func (s *session) forget(p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.told, p)
}
