package zookeeper

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
)

// session is one ZooKeeper session, with locks of the backend. Its life:
//
//	newSession ──> starting ──prepared──> ready ──end──> over
//	                   └─────────────end──────────────────┘
//
// The driver, which would go on with a new session under the same connection,
// is given no server any more once it is over (see Next), so that nothing asked
// in one session is ever done in the next.
type session struct {
	backend *Backend
	conn    *zk.Conn
	events  <-chan zk.Event // closed by the driver when it has ended
	node    string          // the node that the heartbeat writes to
	servers []string        // in an order of this session's own

	ctx    context.Context // ends when it is over; the cause says why
	cancel context.CancelCauseFunc
	ready  chan struct{} // closed when it is
	hurry  chan struct{} // holds an element if somebody waits for a connection

	goroutines sync.WaitGroup

	// Guarded by backend.mu.
	users int         // entries that may have a node, and those who look
	paths int         // bytes of the paths of its nodes, those that may yet come included; without its own node
	idle  *time.Timer // to retire, reset when nobody uses it any more

	mu       sync.Mutex
	changed  chan struct{} // closed, and made anew, at each change of what follows
	link     *link         // the connection that has taken up the session; nil: there is none
	latest   *link         // the connection made last
	id       int64
	timeout  time.Duration // as granted
	taken    time.Time     // when a server took it up last
	tried    time.Time     // when all had failed last
	failures map[string]failure
	relinked chan struct{} // closed, and made anew, with each connection
	rounds   int           // how often all servers have failed
	streak   int           // how often since one has not
	outage   error         // why, until one has not
	proof    proof
	refused  error // why the last heartbeat was refused; nil: it was not
	watched  map[string]*watch

	asking  sync.Mutex  // whether it is removed
	removed atomic.Bool // the service has said that it has ended the session
}

// What is sent is small, but for the watches that are set again on a new
// connection, in packets of 128 KiB; answers list the children of a node.
const (
	bufferSize = 256 << 10
	maxAnswer  = 64 << 20
)

// newSession begins a session. It does not wait for it.
func newSession(b *Backend) (*session, error) {
	s := &session{
		backend:  b,
		node:     b.prefix + "/" + beatMark + rand.Text(),
		servers:  slices.Clone(b.servers),
		ready:    make(chan struct{}),
		hurry:    make(chan struct{}, 1),
		changed:  make(chan struct{}),
		relinked: make(chan struct{}),
		failures: make(map[string]failure),
		watched:  make(map[string]*watch),
	}
	mathrand.Shuffle(len(s.servers), func(i, j int) { s.servers[i], s.servers[j] = s.servers[j], s.servers[i] })
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	// A server that says nothing is not waited for when the session is over.
	context.AfterFunc(s.ctx, func() { time.AfterFunc(goodbye, s.abort) })
	var err error
	s.conn, s.events, err = zk.Connect(b.servers, b.opts.SessionTimeout,
		zk.WithDialer(s.dial),
		zk.WithHostProvider((*hosts)(s)),
		zk.WithEventCallback(s.event),
		zk.WithLogger(driverLog{b.opts.Logger}),
		zk.WithMaxConnBufferSize(bufferSize),
		zk.WithMaxBufferSize(maxAnswer),
	)
	if err != nil {
		s.cancel(err)
		return nil, err
	}
	s.idle = time.AfterFunc(b.opts.SessionTimeout, s.retire)
	b.running.Go(s.run)
	return s, nil
}

// run keeps the session until it is over and all its goroutines have ended.
func (s *session) run() {
	err := s.prepare()
	if err == nil {
		err = s.keep()
	}
	s.end(err) // if it is not over yet
	s.closeDriver()
	s.idle.Stop()
	s.goroutines.Wait()
}

// event is called by the driver, and must not block.
func (s *session) event(e zk.Event) {
	switch {
	case e.Type == zk.EventSession && e.State == zk.StateExpired:
		s.end(errExpired)
	case e.Type == zk.EventSession && e.State == zk.StateDisconnected:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.link != nil {
			s.link = nil
			s.change()
		}
	case e.Type > 0:
		s.fire(e.Path, e.Type)
	}
}

var (
	// errExpired is the service's word: it has removed all nodes of the session.
	errExpired = errors.New("the session has expired")
	// errUnproven is the client's own: the nodes may still be there.
	errUnproven = errors.New("the session has not been heard of for its timeout")
)

// change wakes those who wait for one. s.mu is held.
func (s *session) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// end makes the session over, once. It does not block.
func (s *session) end(cause error) { s.cancel(cause) }

// goodbye is how long a session that is over keeps its connection: for a heartbeat
// under way, and for the server to answer that the session is closed.
const goodbye = 500 * time.Millisecond

// closeDriver says goodbye to the server, which then removes all nodes of the
// session, and returns when the driver has ended.
func (s *session) closeDriver() {
	s.mu.Lock()
	online := s.link != nil
	s.mu.Unlock()
	if !online {
		s.abort() // ends a greeting under way
	}
	// What it says may reach nobody, if the connection ends just then, and it waits
	// a second for an answer. The driver has ended when it tells no more events.
	go s.conn.Close()
	for range s.events {
	}
	s.abort()
}

// abort closes the session's last connection.
func (s *session) abort() {
	s.mu.Lock()
	l := s.latest
	s.mu.Unlock()
	if l != nil {
		l.abort()
	}
}

// isOver reports whether the session is over.
func (s *session) isOver() bool { return s.ctx.Err() != nil }

// over is why it is, for callers.
func (s *session) over() error {
	err := context.Cause(s.ctx)
	var r *refusal
	if errors.Is(err, driver.ErrClosed) || errors.As(err, &r) {
		return err
	}
	return fmt.Errorf("zookeeper: %w: %w", err, driver.ErrUnavailable)
}

// stays returns nil if the service has ended a session that is over, with all nodes that it had or may yet get:
// then its own node is gone, too. It asks on another session, for one caller at a time.
func (s *session) stays(ctx context.Context) (err error) {
	switch {
	case s.removed.Load() || errors.Is(context.Cause(s.ctx), errExpired):
		return nil
	case !s.asking.TryLock():
		return errStays
	}
	defer s.asking.Unlock()
	other, err := s.backend.join(ctx, 0)
	switch {
	case errors.Is(err, driver.ErrClosed):
		return errStays // nobody can ask any more
	case err != nil:
		return err
	}
	defer other.leave(0)
	there, err := other.finds(ctx, s.node)
	if there {
		return errStays
	}
	s.removed.Store(err == nil)
	return err
}

// finds reports whether the service has a node.
func (s *session) finds(ctx context.Context, node string) (bool, error) {
	return ask(ctx, s, func(c *zk.Conn) (bool, error) {
		if _, err := c.Sync(node); err != nil {
			return false, err
		}
		there, _, err := c.Exists(node)
		return there, err
	})
}

var errStays = fmt.Errorf("zookeeper: its session is over for this client, and the service may still keep it: %w",
	driver.ErrUnavailable)

// granted returns the session's ID and timeout, once it has been taken up.
func (s *session) granted() (id int64, timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id, s.timeout
}

// sitOut waits for a connection for as long as the session may live.
func (s *session) sitOut(ctx context.Context) error {
	s.mu.Lock()
	rest := s.timeout - clock.Elapsed(s.proof.since, time.Now())
	s.mu.Unlock()
	s.pause(firstPause) // what failed may fail at once
	limited, cancel := context.WithTimeout(ctx, max(rest, 0))
	defer cancel()
	return s.reconnected(limited)
}

// spawn runs f on a goroutine that Close waits for. It returns false if the
// session is over.
func (s *session) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isOver() {
		return false
	}
	s.goroutines.Go(f)
	return true
}

// wait returns nil when cond holds, which is called with s.mu held, and
// otherwise why not: the session is over, or ctx is. Without patience, it also
// returns when all servers have failed once since it was called; in an outage,
// they are tried at once.
func (s *session) wait(ctx context.Context, patience bool, cond func() bool) error {
	failed := -1 // rounds when this began
	for {
		s.mu.Lock()
		ok, changed, outage, rounds := cond(), s.changed, s.outage, s.rounds
		s.mu.Unlock()
		switch {
		case s.isOver():
			return s.over()
		case ok:
			return nil
		case patience:
		case failed < 0:
			failed = rounds
			if outage != nil {
				select {
				case s.hurry <- struct{}{}:
				default:
				}
			}
		case outage != nil && rounds > failed:
			return outage
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
		case <-ctx.Done():
			return unanswered(ctx)
		}
	}
}

// online waits for a connection, and not for long if there is none to be had.
func (s *session) online(ctx context.Context) error {
	return s.wait(ctx, false, func() bool { return s.link != nil })
}

// reconnected waits for a connection for as long as the session lives.
func (s *session) reconnected(ctx context.Context) error {
	return s.wait(ctx, true, func() bool { return s.link != nil })
}

// ask makes one request, over a connection that is there, and returns when ctx ends (R8).
// The driver knows no contexts, and keeps what it could not send until there is a
// connection again: so the request has a goroutine of its own, and may be carried out
// after it was left behind. The slots bound those under way, those that were left included.
func ask[T any](ctx context.Context, s *session, request func(*zk.Conn) (T, error)) (v T, err error) {
	if err = s.online(ctx); err == nil && ctx.Err() != nil {
		err = unanswered(ctx) // nothing is sent
	}
	if err != nil {
		return v, err
	}
	slots := s.backend.slots
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return v, unanswered(ctx)
	}
	type answer struct {
		v   T
		err error
	}
	answers := make(chan answer, 1)
	if !s.spawn(func() {
		v, err := request(s.conn)
		<-slots
		answers <- answer{v, err}
	}) {
		<-slots
		return v, s.over()
	}
	select {
	case a := <-answers:
		return a.v, s.failure(a.err)
	case <-ctx.Done():
		return v, unanswered(ctx)
	}
}

// do is ask for requests of whose answer only the error matters.
func (s *session) do(ctx context.Context, f func(*zk.Conn) error) error {
	_, err := ask(ctx, s, func(c *zk.Conn) (struct{}, error) { return struct{}{}, f(c) })
	return err
}

// get returns what is in a node, and what is known of it.
func (s *session) get(ctx context.Context, path string) (text string, stat *zk.Stat, err error) {
	type data struct {
		text []byte
		stat *zk.Stat
	}
	d, err := ask(ctx, s, func(c *zk.Conn) (d data, err error) {
		d.text, d.stat, err = c.Get(path)
		return d, err
	})
	return string(d.text), d.stat, err
}

// unanswered is the error of a caller whose context ended before the answer.
func unanswered(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("zookeeper: no answer in time: %w: %w", ctx.Err(), driver.ErrUnavailable)
	}
	return fmt.Errorf("zookeeper: given up before the answer: %w", ctx.Err())
}

// refusal is an error that trying again does not mend.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

func isRefusal(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// failure says what an error of the driver means. Those about a node pass as
// they are.
func (s *session) failure(err error) error {
	switch kindOf(err) {
	case answered:
		return err
	case refused:
		switch codeOf(err) {
		case unimplemented:
			err = fmt.Errorf("%w: it is older than ZooKeeper 3.5, which is the first to have container nodes: "+
				"update it", err)
		case ephemeralOnLocal:
			err = fmt.Errorf("%w: the servers have localSessionsEnabled and not localSessionsUpgradingEnabled, "+
				"and a lock is an ephemeral node, which needs a global session: "+
				"switch the second on, too, or the first off", err)
		}
		return &refusal{fmt.Errorf("zookeeper %s: %w", s.backend, err)}
	case unknown:
	}
	if s.isOver() {
		return s.over()
	}
	return fmt.Errorf("zookeeper: %w: %w", err, driver.ErrUnavailable)
}

func gone(err error) bool { return errors.Is(err, zk.ErrNoNode) }
