package etcd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/oneline"
)

// pool sends all requests to one member, and to another once that one does not answer (R23). The driver's own
// balancer takes turns, and comes back to a member that hangs with every third request.
//
// A request is sent again while there is no answer: everything that this package sends can be carried out
// twice, and at any time later. What that leaves to clear up is told by [fate].
type pool struct {
	driver  clientv3.Client // a copy of the caller's, which dials
	timeout time.Duration
	lines   [urgent]chan struct{}
	send    sender // invoke; the search has a service of its own

	work sync.WaitGroup
	life context.Context
	end  context.CancelFunc

	agreeing chan struct{} // has room for the one who compares
	agreed   bool          // all members that answered are of one cluster; guarded by agreeing

	mu      sync.Mutex
	closed  bool
	members []*member
	current *member
	cluster uint64 // of the first answer; 0: there is none yet
	first   string // whose that was
}

// sender makes one request.
type sender func(
	ctx context.Context, in line, method string, args any, reply answer, opts ...grpc.CallOption,
) (fate, error)

// member is one server, on a connection of its own.
type member struct {
	pool *pool
	addr string
	conn *grpc.ClientConn

	joining chan struct{} // has room for the request that compares the member, for all that wait

	// Guarded by pool.mu.
	failed   time.Time
	typical  time.Duration // how long its answers take
	probing  bool
	changes  int    // of its connection
	compared int    // the changes when it was compared with the others: see join
	login    *login // under way; nil: none is
}

const (
	// atOnce bounds the requests in flight of each line. Etcd gains nothing by more.
	atOnce        = 256
	readersAtOnce = 16
	// grace is what a connection that has failed gets to be made again.
	grace = 250 * time.Millisecond
	// electionPause is the first pause after all members have failed.
	electionPause = 50 * time.Millisecond
)

func newPool(client *clientv3.Client, timeout time.Duration) (*pool, error) {
	// The driver's Dial reads endpoints without the lock under which SetEndpoints and AutoSync write them.
	// Those of a copy are written by nobody; the lock, taken on both sides, keeps the copying from being a race
	// with all that they did before and will do later.
	addrs := client.Endpoints()
	p := &pool{driver: *client, timeout: timeout, agreeing: make(chan struct{}, 1)}
	_ = client.Endpoints()
	p.send = p.invoke
	p.driver.Auth = &logins{client.Auth, p}
	for i := range p.lines {
		p.lines[i] = make(chan struct{}, atOnce)
	}
	p.lines[readers] = make(chan struct{}, readersAtOnce)
	p.life, p.end = context.WithCancel(context.Background())
	err := errors.New("the client has no endpoint that can be used: give it one")
	for _, addr := range addrs {
		if m, dialErr := p.newMember(addr); dialErr == nil {
			p.members = append(p.members, m)
		} else {
			err = oneline.Join(err, dialErr)
		}
	}
	if len(p.members) == 0 {
		return nil, oneline.Join(err, p.close())
	}
	// Any of them, so that clients spread over the members.
	p.current = p.members[clock.UpTo(time.Duration(len(p.members)))]
	return p, nil
}

// all returns the members as they are now.
func (p *pool) all() []*member {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.members)
}

// start has fn run beside what the pool does; fn ends with p.life. It returns false if the pool is closed.
func (p *pool) start(fn func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.work.Go(fn)
	}
	return !p.closed
}

func (p *pool) close() (err error) {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.end()
	p.work.Wait()
	for _, m := range p.members {
		err = oneline.Join(err, m.conn.Close())
	}
	return err
}

// pick returns the member to ask, of how many, and how long to wait for it: longer with every try, so that a
// cluster that is slow as a whole is not asked in vain.
func (p *pool) pick(try int) (m *member, of int, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, of = p.current, len(p.members)
	if of == 1 {
		return m, of, p.timeout // nobody else can be asked
	}
	return m, of, min(max(p.timeout/10, 4*m.typical)<<min(try-1, 8), p.timeout)
}

// answered notes how long an answer took, and returns an error if it is another cluster's.
func (p *pool) answered(m *member, d time.Duration, h *pb.ResponseHeader) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.typical += (d - m.typical) / 8
	return p.compare(m, h)
}

// avoid makes the next request go to the member that has failed longest ago, or not at all. What is open at m
// goes on unless a probe finds that it hangs: it costs little to ask another member, and much to move ten
// thousand watches.
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
	if !m.probing && !p.closed {
		m.probing = true
		p.work.Go(func() { p.probe(m) })
	}
}

// probe gives a member that does not answer another connection. That ends what is open on the old one, which
// goes on at another member. A single member has to answer on the new one, and still not on the old one: the
// network has forgotten that, or the name leads elsewhere now (R22, R26). One that has too much to do answers
// on neither (R21).
func (p *pool) probe(m *member) {
	var other *member
	silent := !p.answers(m)
	if silent {
		var err error
		other, err = p.newMember(m.addr)
		silent = err == nil
	}
	if silent && len(p.all()) == 1 {
		late := make(chan bool, 1)
		go func() { late <- p.answers(m) }()
		works := p.answers(other)
		silent = !<-late && works
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.probing = false
	i := slices.Index(p.members, m)
	switch {
	case !silent || i < 0: // another probe has replaced it, and a request was still on it
		if other != nil {
			_ = other.conn.Close()
		}
		return
	case p.current == m:
		p.current = other
	}
	p.members[i], other.failed, other.typical = other, m.failed, m.typical
	_ = m.conn.Close()
}

// answers reports whether a member answers soon.
func (p *pool) answers(m *member) bool {
	ctx, cancel := context.WithTimeout(p.life, p.timeout/3)
	defer cancel()
	err := m.join(ctx)
	if err == nil {
		probe := &pb.RangeRequest{Key: []byte(probeKey), CountOnly: true}
		_, err = pb.NewKVClient(m.conn).Range(withLeader(m.on(ctx)), probe)
	}
	return err == nil || outcomeOf(err) == refused // it may have no right to this key
}

// probeKey is a key that nobody has.
const probeKey = "locker/1/lock/"

// connect returns nil if there is a connection to the member, and waits for one that is being made. The
// driver would wait for as long as it is let, and not say why.
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
		if state == connectivity.Shutdown || !m.conn.WaitForStateChange(ctx, state) ||
			m.conn.GetState() == connectivity.TransientFailure {
			return &noAnswerError{"no member can be connected to" + m.why()}
		}
	}
	return nil
}

// why returns the reason for which there is no connection, which the driver tells only to requests that do
// not wait.
func (m *member) why() string {
	if m.conn.GetState() != connectivity.TransientFailure {
		return ": " + m.addr + " does not answer"
	}
	ctx, cancel := context.WithTimeout(m.pool.life, 50*time.Millisecond)
	defer cancel()
	_, err := m.status(ctx)
	if err == nil || ctx.Err() != nil {
		return ""
	}
	return ": " + strings.ReplaceAll(status.Convert(err).Message(), "\n", " ")
}
