package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/etcderr"
)

// pool sends all requests to one member, and to another once that one does not
// answer (R23). The driver's own balancer takes turns, and comes back to a
// member that hangs with every third request.
//
// A request is sent again while there is no answer: everything that this
// package sends can be carried out twice, and at any time later. What that
// leaves to clear up is told by [call].
type pool struct {
	client  *clientv3.Client
	timeout time.Duration
	// Requests under way take a slot; the others wait in line (R21). Releases have a
	// line of their own: sixteen thousand who ask for locks are not before them.
	slots, releases chan struct{}
	// conn is what the driver's own clients are made on. It is never connected: what
	// they ask goes to a member, by invoke and stream.
	conn *grpc.ClientConn

	probes sync.WaitGroup
	life   context.Context
	end    context.CancelFunc

	mu      sync.Mutex
	closed  bool
	members []*member
	current *member
}

// member is one server, on a connection of its own.
type member struct {
	pool *pool
	addr string
	conn *grpc.ClientConn

	// Guarded by pool.mu.
	failed  time.Time
	typical time.Duration // how long its answers take
	probing bool
	streams context.Context // of what has been opened there
	end     context.CancelFunc
}

const (
	// atOnce bounds the requests under way in each line. Etcd gains nothing by more.
	atOnce = 256
	// grace is what a connection that has failed gets to be made again.
	grace = 250 * time.Millisecond
	// electionPause is the first pause after all members have failed.
	electionPause = 50 * time.Millisecond
)

func newPool(client *clientv3.Client, timeout time.Duration) (*pool, error) {
	p := &pool{client: client, timeout: timeout, slots: make(chan struct{}, atOnce), releases: make(chan struct{}, atOnce)}
	var err error
	if p.conn, err = grpc.NewClient("passthrough:///members", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(p.invoke), grpc.WithStreamInterceptor(p.stream)); err != nil {
		return nil, err
	}
	p.life, p.end = context.WithCancel(context.Background())
	for _, addr := range client.Endpoints() {
		conn, err := client.Dial(addr)
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		m := &member{pool: p, addr: addr, conn: conn}
		m.streams, m.end = context.WithCancel(p.life)
		p.members = append(p.members, m)
	}
	if len(p.members) == 0 {
		return nil, errors.New("the client has no endpoints")
	}
	// Any of them, so that clients spread over the members.
	p.current = p.members[clock.UpTo(time.Duration(len(p.members)))]
	return p, nil
}

func (p *pool) close() (err error) {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.end()
	p.probes.Wait()
	for _, m := range p.members {
		err = errors.Join(err, m.conn.Close())
	}
	return errors.Join(err, p.conn.Close())
}

// call is the context of a request, and tells what is known of it beside its answer,
// or instead of one.
type call struct {
	context.Context
	carriedOut bool // it may have been, without an answer that says so
	underWay   bool // it may yet be carried out, once more or at all
	urgent     bool // it does not wait in line
	release    bool // it waits in line with releases alone
}

type callKey struct{}

// Value implements [context.Context].
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// needsLeader has a member that is cut off say so at once.
var needsLeader = metadata.Pairs(rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)

// noAnswerError is a request that no member has answered.
type noAnswerError struct{ reason string }

func (e *noAnswerError) Error() string { return e.reason }

// invoke makes one request: it is a [grpc.UnaryClientInterceptor].
func (p *pool) invoke(ctx context.Context, method string, args, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		c = &call{Context: ctx}
	}
	if !c.urgent {
		slots := p.slots
		if c.release {
			slots = p.releases
		}
		select {
		case slots <- struct{}{}:
		default:
			select {
			case slots <- struct{}{}:
			case <-c.Done():
				return c.Err()
			}
		}
		defer func() { <-slots }()
	}
	ctx, limit := clock.Parts(c.Context) // it has a timer of its own
	if err := ctx.Err(); err != nil {
		return err // nothing was sent, for certain
	}
	if limit == 0 || limit > p.timeout {
		limit = p.timeout
	}
	opts = append(slices.Clip(opts), grpc.WaitForReady(false))
	outgoing := metadata.NewOutgoingContext(untimed{ctx}, needsLeader)
	if _, others := metadata.FromOutgoingContext(ctx); others {
		outgoing = clientv3.WithRequireLeader(untimed{ctx})
	}
	began := time.Now()
	sent := false
	for try := 0; ; try++ {
		sentAt, left := time.Now(), limit-time.Since(began)
		m, wait := p.pick(try)
		limited, cancel := context.WithCancel(outgoing)
		timer := time.AfterFunc(min(wait, left), cancel)
		err := m.connect(limited)
		var unsent *noAnswerError
		if err == nil {
			err = m.conn.Invoke(limited, method, args, reply, opts...)
		}
		late := limited.Err() != nil
		timer.Stop()
		cancel()
		if err == nil {
			p.answered(m, time.Since(sentAt))
			return nil
		}
		outcome := etcderr.NotYet
		if !errors.As(err, &unsent) {
			sent = true
			outcome = etcderr.Of(err)
		}
		c.carriedOut = c.carriedOut || outcome >= etcderr.Answered
		c.underWay = c.underWay || outcome == etcderr.Unknown
		if outcome == etcderr.Refused || outcome == etcderr.Answered {
			return err
		}
		if c.Err() != nil {
			return c.Err() // no fault of the member's
		}
		p.avoid(m)
		round := (try + 1) / len(p.members)
		switch left = limit - time.Since(began); {
		case left <= 0, !sent && round > 0:
			if late && unsent == nil {
				return &noAnswerError{fmt.Sprintf("no member has answered within %v", p.timeout)}
			}
			return err
		case (try+1)%len(p.members) == 0 && !late:
			// All have refused: they elect a leader, or have too much to do.
			if err := clock.Sleep(ctx, min(left, clock.Jitter(clock.BackOff(round-1, electionPause, p.timeout)))); err != nil {
				return err
			}
		}
	}
}

// stream opens one: it is a [grpc.StreamClientInterceptor].
func (p *pool) stream(ctx context.Context, desc *grpc.StreamDesc, _ *grpc.ClientConn, method string, _ grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	m, _ := p.pick(0)
	stream, err := m.conn.NewStream(m.streaming(ctx), desc, method, append(slices.Clip(opts), grpc.WaitForReady(false))...)
	if err != nil && ctx.Err() == nil {
		p.avoid(m)
	}
	return stream, err
}

// untimed is a context that does not say when it ends. The driver would tell the
// member, which would set timers of its own: some 5 % of a request's time.
type untimed struct{ context.Context }

// Deadline implements [context.Context].
func (untimed) Deadline() (time.Time, bool) { return time.Time{}, false }

// pick returns the member to ask, and how long to wait for it: longer with
// every try, so that a cluster that is slow as a whole is not asked in vain.
func (p *pool) pick(try int) (*member, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.current
	if len(p.members) == 1 {
		return m, p.timeout // nobody else can be asked
	}
	return m, min(max(p.timeout/10, 4*m.typical)<<min(try, 8), p.timeout)
}

func (p *pool) answered(m *member, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.typical += (d - m.typical) / 8
}

// avoid makes the next request go to the member that has failed longest ago, or
// not at all. What is open at m goes on unless a probe finds that it hangs: it
// costs little to ask another member, and much to move ten thousand watches.
func (p *pool) avoid(m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.failed = time.Now()
	m.typical += (p.timeout/10 - m.typical) / 8
	if m == p.current {
		for _, other := range p.members {
			if other.failed.Before(p.current.failed) {
				p.current = other
			}
		}
	}
	if !m.probing && !p.closed && len(p.members) > 1 {
		m.probing = true
		p.probes.Go(func() { p.probe(m) })
	}
}

// probe ends what is open at a member if it does not answer.
func (p *pool) probe(m *member) {
	ctx, cancel := context.WithTimeout(p.life, p.timeout/3)
	defer cancel()
	err := m.connect(ctx)
	if err == nil {
		_, err = etcdserverpb.NewKVClient(m.conn).Range(clientv3.WithRequireLeader(ctx), &etcdserverpb.RangeRequest{Key: []byte(probeKey), CountOnly: true})
	}
	hangs := err != nil && etcderr.Of(err) != etcderr.Refused // it may have no right to this key
	p.mu.Lock()
	defer p.mu.Unlock()
	m.probing = false
	if hangs && !p.closed {
		m.end()
		m.streams, m.end = context.WithCancel(p.life)
	}
}

// probeKey is a key that nobody has.
const probeKey = "locker/1/lock/"

// streaming returns a context for what is opened at the member. It ends when the
// member is found to hang.
func (m *member) streaming(ctx context.Context) context.Context {
	m.pool.mu.Lock()
	streams := m.streams
	m.pool.mu.Unlock()
	ctx, end := context.WithCancel(clientv3.WithRequireLeader(ctx))
	stop := context.AfterFunc(streams, end)
	context.AfterFunc(ctx, func() { stop() })
	return ctx
}

// connect returns nil if there is a connection to the member, and waits for one
// that is being made. The driver would wait for as long as it is let, and not
// say why.
func (m *member) connect(ctx context.Context) error {
	state := m.conn.GetState()
	if state == connectivity.Ready {
		return nil
	}
	if state == connectivity.TransientFailure {
		// The driver's pauses grow to two minutes: a request is a reason to try now.
		m.conn.ResetConnectBackoff()
		limited, cancel := context.WithTimeout(ctx, grace)
		defer cancel()
		ctx = limited
	}
	for ; state != connectivity.Ready; state = m.conn.GetState() {
		if state == connectivity.Idle {
			m.conn.Connect()
		}
		if state == connectivity.Shutdown || !m.conn.WaitForStateChange(ctx, state) || m.conn.GetState() == connectivity.TransientFailure {
			return &noAnswerError{"no member can be connected to" + m.why()}
		}
	}
	return nil
}

// why returns the reason for which there is no connection, which the driver
// tells only to requests that do not wait.
func (m *member) why() string {
	if m.conn.GetState() != connectivity.TransientFailure {
		return ": " + m.addr + " does not answer"
	}
	ctx, cancel := context.WithTimeout(m.pool.life, 50*time.Millisecond)
	defer cancel()
	_, err := etcdserverpb.NewMaintenanceClient(m.conn).Status(ctx, &etcdserverpb.StatusRequest{}, grpc.WaitForReady(false))
	if err == nil || ctx.Err() != nil {
		return ""
	}
	_, text, found := strings.Cut(err.Error(), "desc = ")
	if !found {
		text = err.Error()
	}
	return ": " + strings.ReplaceAll(text, "\n", " ")
}
