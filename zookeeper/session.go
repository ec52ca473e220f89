package zookeeper

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
	lasting "github.com/golockers/locker/internal/session"
)

// session is one ZooKeeper session, with locks of the backend, on a connection of its own.
//
// When a session has expired, the driver would go on with a new one. It gets no server once the session is over (see
// Next), so that no request made in one session is ever carried out in the next.
type session struct {
	*lasting.Session
	backend *Backend
	conn    *zk.Conn
	events  <-chan zk.Event // closed by the driver when it has ended
	node    string          // which the heartbeat writes to
	hurry   chan struct{}   // holds an element if somebody is waiting for a connection

	goroutines    sync.WaitGroup
	dials         *dials
	authenticated int  // how many credentials the driver has been given: it repeats them on each connection
	warned        bool // that heartbeats are refused

	paths  int          // bytes of the paths of its nodes, including those that may still come; guarded by backend.mu
	asking sync.Mutex   // held by the caller that asks whether the service still has it
	seen   atomic.Int64 // the number of the last transaction in an answer: see link

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each change of the fields below
	ready    bool          // it is open
	link     *link         // the connection on which a server has taken up the session; nil: there is none
	latest   *link         // the connection made last
	id       int64
	timeout  time.Duration // as granted
	servers  servers
	relinked chan struct{} // closed and replaced with each connection
	proof    proof
	watched  map[string]*watch
}

const (
	// Requests are small, except those that set the watches again on a new
	// connection, in packets of 128 KiB. Answers list the children of a node.
	bufferSize = 256 << 10
	maxAnswer  = 64 << 20
	// leastBuffer is the smallest jute.maxbuffer that servers may have: an eighth of its default, and what the
	// driver needs anyway to set its watches again.
	leastBuffer = 128 << 10
	// maxPaths bounds the bytes that the paths of one session's nodes may have. When a session ends, the service
	// makes one transaction that lists them all. If that is longer than 2 × jute.maxbuffer, no server can read it,
	// and the service is lost, even after a restart (ZOOKEEPER-4306). The rest of the transaction takes far less
	// than 1 KiB. Beyond the bound, the backend opens another session (R25).
	maxPaths = 2*leastBuffer - 1<<10

	// goodbye is how long a session that is over keeps its connection: for a heartbeat
	// in flight, and for the server to answer that the session is closed.
	goodbye = 500 * time.Millisecond
)

// pathBytes is what a path takes in that transaction, where its length comes before it.
func pathBytes(path string) int { return 4 + len(path) }

// terms says how a session of that timeout is kept alive.
func terms(timeout time.Duration) lasting.Terms {
	return lasting.Terms{
		Every: timeout / 10, Retry: timeout / 100, Silence: timeout / 4, Least: timeout / 4, Refused: isRefusal,
	}
}

// join returns a session that is ready and has room for so many bytes of paths: 0 for a
// user that creates no node. It is the oldest with room, so that the others become unused
// and can end. The caller calls leave.
func (b *Backend) join(ctx context.Context, bytes int) (*session, error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, driver.ErrClosed
	}
	b.live = slices.DeleteFunc(b.live, (*session).isOver)
	others := slices.IndexFunc(b.live, func(s *session) bool {
		return (s.paths == 0 || s.paths+bytes+pathBytes(s.node) <= maxPaths) && s.Join()
	})
	if others < 0 {
		others = len(b.live)
		b.live = append(b.live, newSession(b))
		b.live[others].Join()
	}
	s := b.live[others]
	s.paths += bytes
	b.mu.Unlock()
	err := s.wait(ctx, false, func() bool { return s.ready })
	if err == nil {
		return s, nil
	}
	s.leave(bytes)
	if others > 0 {
		err = fmt.Errorf("zookeeper: the locks of this client fill %d connections "+
			"(each can have %d KiB of names), and need another: %w", others, maxPaths>>10, err)
	}
	return nil, err
}

// leave ends one use of the session, and gives back its room.
func (s *session) leave(bytes int) {
	s.backend.mu.Lock()
	s.paths -= bytes
	s.backend.mu.Unlock()
	s.Leave()
}

// newSession begins a session, and does not wait until it is ready. A session that nobody uses ends after one more
// timeout, so that an idle client writes nothing: opening another takes fewer writes than the heartbeats of one timeout.
func newSession(b *Backend) *session {
	s := &session{
		Session:  lasting.New(b.opts.SessionTimeout),
		backend:  b,
		node:     b.prefix + "/" + beatMark + rand.Text(),
		servers:  newServers(b.servers),
		hurry:    make(chan struct{}, 1),
		changed:  make(chan struct{}),
		relinked: make(chan struct{}),
		watched:  make(map[string]*watch),
	}
	// When the session is over, a silent server must not delay its end.
	context.AfterFunc(s.Context(), func() { time.AfterFunc(goodbye, s.abort) })
	logger := slog.NewLogLogger(b.opts.Logger.Handler(), slog.LevelDebug) // what it says has no credentials
	logger.SetPrefix("zookeeper: driver: ")
	s.conn, s.events, _ = zk.Connect(b.servers, b.opts.SessionTimeout,
		zk.WithDialer(s.dial),
		zk.WithHostProvider((*hosts)(s)),
		zk.WithEventCallback(s.event),
		zk.WithLogger(logger),
		zk.WithMaxConnBufferSize(bufferSize),
		zk.WithMaxBufferSize(maxAnswer),
	) // which fails only without a server
	b.running.Go(s.run)
	return s
}

// run keeps the session alive until it is over, and returns when all its goroutines have ended. The holders are notified
// before the service is.
func (s *session) run() {
	if err := s.prepare(); err != nil {
		s.End(err)
	} else {
		s.Keep(s.beat)
	}
	s.closeDriver()
	s.goroutines.Wait()
}

// prepare authenticates and creates the session's own node. It tries until that succeeds,
// the service refuses it, or the session is over.
func (s *session) prepare() error {
	for ; ; s.pause(s.backend.opts.SessionTimeout / 40) {
		if err := s.reconnected(s.Context()); err != nil {
			return err
		}
		since, err := s.introduce()
		switch {
		case err == nil:
			s.mu.Lock()
			defer s.mu.Unlock()
			s.Open(since, s.timeout, terms(s.timeout))
			s.ready = true
			s.change()
			return nil
		case s.isOver():
			return s.over()
		case isRefusal(err):
			return err
		}
		// The connection broke, or the service has a problem that passes.
	}
}

// introduce is one try of prepare.
func (s *session) introduce() (since time.Time, err error) {
	for auth := s.backend.opts.Auth; s.authenticated < len(auth); s.authenticated++ {
		a := auth[s.authenticated]
		add := func(c *zk.Conn) error { return c.AddAuth(a.Scheme, []byte(a.Credentials)) }
		if err := s.do(s.Context(), add); err != nil {
			return since, s.forbidden(err)
		}
	}
	since, err = s.write(s.createBeat)
	if gone(err) {
		parents := func(c *zk.Conn) error { return makeParents(c, s.backend.prefix, s.backend.acl) }
		if err = s.do(s.Context(), parents); err == nil {
			since, err = s.write(s.createBeat)
		}
	}
	return since, s.forbidden(err)
}

// beat writes to the session's node. If that is refused, the driver's pings would keep the session alive, and with it
// the nodes of holders that can no longer rely on them. So the session ends once the last lease has ended, and not
// before, because its end removes the nodes at once (R3).
func (s *session) beat() (since time.Time, err error) {
	since, err = s.write(func(c *zk.Conn) error { _, err := c.Set(s.node, nil, -1); return err })
	switch {
	case gone(err): // somebody has removed it, and the session is still there
		since, err = s.write(s.createBeat)
		err = s.forbidden(err)
	case errors.Is(err, zk.ErrNoAuth):
		err = refusing(err, "this client has no right to write to %s any more: restore its ACL", s.node)
	}
	if refused := isRefusal(err); refused && !s.warned {
		s.backend.opts.Logger.Warn("zookeeper: heartbeats are refused, so that leases are not renewed", "error", err)
		s.warned = true
	} else if err == nil {
		s.warned = false
	}
	return since, err
}

func (s *session) createBeat(c *zk.Conn) error {
	_, err := c.Create(s.node, nil, zk.FlagEphemeral, s.backend.acl)
	if errors.Is(err, zk.ErrNodeExists) {
		return nil // it is our own, and the answer was lost: nobody else knows the name
	}
	return err
}

// write makes one write that counts as a heartbeat, and returns the moment from which the session is now proven to
// count. A connection without an answer is given up, so that the driver tries another server.
func (s *session) write(f func(*zk.Conn) error) (since time.Time, err error) {
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l == nil {
		return since, s.failure(zk.ErrConnectionClosed)
	}
	sent, patience := time.Now(), s.backend.patience()
	late := time.AfterFunc(patience, func() {
		s.failed(l.server, fmt.Errorf("no answer to a write after %v", patience), patience)
		s.unlink(l) // what is asked from now on waits for the next connection
		l.abort()
	})
	defer late.Stop()
	if err := f(s.conn); err != nil { // without a slot, so that it waits for no other request
		return since, s.failure(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proof.ack(l, beat{sent: sent, acked: time.Now()})
	return s.proof.since, nil
}

// validity returns the validity of a hold that was requested, or whose renewal was, at since. If the last heartbeat is
// too old, it waits for the next one, until ctx is done or heartbeats are refused.
//
// The engine gets since, and the age of the proof at that time as part of the drift: the lease then ends with the
// timeout as proven, less the usual allowance for clocks. since carries both clocks, and the age is the greater of the
// two, so the lease ends no later by either of them (R4).
func (s *session) validity(ctx context.Context, since time.Time) (driver.Validity, error) {
	v, err := s.Fresh(ctx)
	switch {
	case err == nil:
	case s.isOver():
		return driver.Validity{}, s.over()
	case !isRefusal(err):
		return driver.Validity{}, fmt.Errorf("zookeeper: %w: %w", err, driver.ErrUnavailable)
	}
	drift := driver.Drift(v.TTL) + max(0, clock.Elapsed(v.Since, since))
	return driver.Validity{Since: since, TTL: v.TTL, Drift: drift}, err
}

// event is called by the driver, and must not block.
func (s *session) event(e zk.Event) {
	switch {
	case e.Type == zk.EventSession && e.State == zk.StateExpired:
		s.Ended() // the service has removed all nodes of the session
	case e.Type == zk.EventSession && e.State == zk.StateDisconnected:
		s.mu.Lock()
		l := s.link
		s.mu.Unlock()
		s.unlink(l)
	case e.Type > 0:
		s.fire(e.Path, e.Type)
	}
}

// unlink notes that a connection is of no use any more.
func (s *session) unlink(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l != nil && s.link == l {
		s.link = nil
		s.change()
	}
}

// change wakes all that wait for a change. s.mu is held.
func (s *session) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// closeDriver says goodbye to the server, which then removes all nodes of the
// session, and returns when the driver has ended.
func (s *session) closeDriver() {
	s.mu.Lock()
	online := s.link != nil
	s.mu.Unlock()
	if !online {
		s.abort() // ends a greeting in flight
	}
	// If the connection breaks just then, the goodbye reaches nobody, and Close waits a second
	// for the answer. The driver has ended when it closes its channel of events.
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

func (s *session) isOver() bool { return s.Err() != nil }

// over is the error of a request for a session that is over.
func (s *session) over() error {
	err := s.Err()
	if errors.Is(err, driver.ErrClosed) || isRefusal(err) {
		return err
	}
	return fmt.Errorf("zookeeper: %w: %w", err, driver.ErrUnavailable)
}

// stays returns nil if the service has ended a session that is over, with all nodes that it had or may yet get:
// then its own node is gone, too, and that of e, which tells if somebody has removed the first one by hand. It asks on
// another session, for one caller at a time.
func (s *session) stays(ctx context.Context, e *entry) error {
	if s.IsGone() {
		return nil
	}
	if !s.asking.TryLock() {
		return errStays
	}
	defer s.asking.Unlock()
	other, err := s.backend.join(ctx, 0)
	if errors.Is(err, driver.ErrClosed) {
		return errStays // nobody can ask any more
	} else if err != nil {
		return err
	}
	defer other.leave(0)
	there, err := other.finds(ctx, s.node)
	if err == nil && !there {
		there, err = other.findsOf(ctx, s, e)
	}
	if there {
		return errStays
	} else if err == nil {
		s.Ended()
	}
	return err
}

var errStays = fmt.Errorf("zookeeper: its session is over for this client, and the service may still keep it: %w",
	driver.ErrUnavailable)

// findsOf reports whether the service has the node of an entry, and that is of a session: the same request made again
// has another.
func (s *session) findsOf(ctx context.Context, of *session, e *entry) (bool, error) {
	q, err := s.queueOf(ctx, e.dir, e.id, true)
	if err != nil || !q.found {
		return false, err
	}
	node, err := s.get(ctx, e.dir+"/"+q.self.name)
	if gone(err) {
		return false, nil
	}
	id, _ := of.granted()
	return err == nil && node.stat.EphemeralOwner == id, err
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

// granted returns the session's ID and timeout, once it has been taken up.
func (s *session) granted() (id int64, timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id, s.timeout
}

// lasts returns an error if the servers have granted the session a shorter timeout than ttl.
func (s *session) lasts(ttl time.Duration) error {
	if _, timeout := s.granted(); ttl > timeout {
		return fmt.Errorf("zookeeper %s: a TTL of %v is asked for, and the servers grant sessions of %v: "+
			"ask for less, or raise their maxSessionTimeout: %w", s.backend, ttl, timeout, errors.ErrUnsupported)
	}
	return nil
}

func (s *session) pause(d time.Duration) { _ = clock.Sleep(s.Context(), d) }

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

// wait returns nil once cond is true, which is called with s.mu held. It returns
// an error when the session is over or ctx is done. Without patience, it also
// returns when all servers have failed once since it was called, and if there is
// an outage already, it has them tried at once.
func (s *session) wait(ctx context.Context, patience bool, cond func() bool) error {
	failed := -1 // rounds when this began
	for {
		s.mu.Lock()
		ok, changed, outage, rounds := cond(), s.changed, s.servers.outage, s.servers.rounds
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
		case <-s.Context().Done():
		case <-ctx.Done():
			return unanswered(ctx)
		}
	}
}

// online waits for a connection, but does not wait out an outage.
func (s *session) online(ctx context.Context) error {
	return s.wait(ctx, false, func() bool { return s.link != nil })
}

// reconnected waits for a connection for as long as the session lives.
func (s *session) reconnected(ctx context.Context) error {
	return s.wait(ctx, true, func() bool { return s.link != nil })
}

// ask makes one request when there is a connection, and returns when ctx ends (R8). The
// driver knows no contexts, and keeps what it could not send until there is a connection
// again. So the request has a goroutine of its own, and may still be carried out after its
// caller has left. The slots bound the requests in flight, including those that were left.
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

// do is ask for requests whose answer is only an error.
func (s *session) do(ctx context.Context, f func(*zk.Conn) error) error {
	_, err := ask(ctx, s, func(c *zk.Conn) (struct{}, error) { return struct{}{}, f(c) })
	return err
}

// data is the content of a node, and its metadata.
type data struct {
	text string
	stat *zk.Stat
}

func (s *session) get(ctx context.Context, path string) (data, error) {
	return ask(ctx, s, func(c *zk.Conn) (data, error) {
		text, stat, err := c.Get(path)
		return data{string(text), stat}, err
	})
}
