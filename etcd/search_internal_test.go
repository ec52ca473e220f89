package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/session"
)

// The search runs the package on an etcd in virtual time, whose network and leaders do what a seed says:
// requests are lost, late, slow, and carried out twice, members lag behind, watches miss what happens, clients are
// cut off, pause or die, a leader that wakes up revokes leases under their holders, leases expire before they are
// used, and somebody deletes keys by hand.

const searchTTL = 10 * time.Second

// server is the etcd.
type server struct {
	mu      sync.Mutex
	draw    *rand.Rand
	rev     int64
	keys    map[string]*mvccpb.KeyValue // never changed in place
	before  []version                   // what members may still have
	leases  map[int64]*serverLease
	last    int64
	watches map[*searchWatch]bool
	holds   map[*searchHold]bool
	ended   map[string]bool     // owners whose removal was answered
	byHand  map[int64]time.Time // create revisions of places that were deleted by hand, and when
	wrong   []string
	bug     string
	calm    bool // no lease is over before it is used any more
}

func newServer(seed uint64, bug string) *server {
	return &server{
		draw: rand.New(rand.NewPCG(seed, 7)), rev: 1, keys: map[string]*mvccpb.KeyValue{},
		leases: map[int64]*serverLease{}, watches: map[*searchWatch]bool{}, holds: map[*searchHold]bool{},
		ended: map[string]bool{}, byHand: map[int64]time.Time{}, bug: bug,
	}
}

type version struct {
	rev  int64
	keys map[string]*mvccpb.KeyValue
}

type serverLease struct {
	ttl   time.Duration
	ends  *time.Timer
	until time.Time
}

func (l *serverLease) renew() {
	l.until = time.Now().Add(l.ttl)
	l.ends.Reset(l.ttl)
}

// do does something at etcd.
func (s *server) do(something func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	something()
}

func (s *server) random(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draw.IntN(n)
}

func (s *server) upTo(d time.Duration) time.Duration {
	return time.Duration(s.random(int(d/time.Millisecond)+1)) * time.Millisecond
}

// change is a new revision. s.mu is held.
func (s *server) change() {
	s.before = append(s.before[max(0, len(s.before)-4):], version{s.rev, maps.Clone(s.keys)})
	s.rev++
}

func (s *server) remove(key string) {
	delete(s.keys, key)
	for w := range s.watches {
		if w.key == key {
			w.tell(deleted, s.rev)
		}
	}
}

func (s *server) endLease(id int64) {
	if l := s.leases[id]; l != nil {
		l.ends.Stop()
		delete(s.leases, id)
		s.change()
		for _, key := range slices.Sorted(maps.Keys(s.keys)) {
			if s.keys[key].Lease == id {
				s.remove(key)
			}
		}
	}
}

// apply carries a request out.
func (s *server) apply(method string, args any, reply answer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch req := args.(type) {
	case *pb.LeaseGrantRequest:
		if req.ID == 0 {
			s.last++
			req = &pb.LeaseGrantRequest{ID: s.last, TTL: req.TTL}
		}
		if s.leases[req.ID] != nil {
			return rpctypes.ErrLeaseExist
		}
		if to, ok := reply.(*pb.LeaseGrantResponse); ok {
			to.ID, to.TTL = req.ID, req.TTL
		}
		if !s.calm && s.draw.IntN(30) == 0 {
			return nil // it is over before it is used
		}
		l := &serverLease{ttl: time.Duration(req.TTL) * time.Second}
		l.ends = time.AfterFunc(l.ttl, func() { s.do(func() { s.endLease(req.ID) }) })
		l.renew()
		s.leases[req.ID] = l
	case *pb.LeaseTimeToLiveRequest:
		if to, ok := reply.(*pb.LeaseTimeToLiveResponse); ok {
			if to.TTL = -1; s.leases[req.ID] != nil {
				to.TTL = int64(time.Until(s.leases[req.ID].until) / time.Second)
				to.GrantedTTL = int64(s.leases[req.ID].ttl / time.Second)
			}
		}
	case *pb.LeaseRevokeRequest:
		for h := range s.holds {
			if h.believes && h.lease == req.ID {
				s.fail("%s believes, and its session is revoked", h.owner)
			}
		}
		if s.leases[req.ID] == nil {
			return rpctypes.ErrLeaseNotFound
		}
		s.endLease(req.ID)
	case *pb.TxnRequest:
		if bugs[s.bug] != nil {
			req = cloned(req)
			bugs[s.bug](req)
		}
		keys, rev, local := s.keys, s.rev, !writes(req)
		for _, op := range req.Success {
			local = local && op.GetRequestRange().GetSerializable()
		}
		if n := len(s.before); local && n > 0 && s.draw.IntN(2) == 0 { // a member that lags behind
			v := s.before[s.draw.IntN(n)]
			keys, rev = v.keys, v.rev
		}
		if err := s.leasesOf(req, keys); err != nil {
			return err
		}
		if writes(req) {
			s.change()
			rev = s.rev
		}
		resp := s.txn(req, keys)
		if to, ok := reply.(*pb.TxnResponse); ok {
			to.Header, to.Succeeded, to.Responses = &pb.ResponseHeader{Revision: rev}, resp.Succeeded, resp.Responses
		}
	default:
		return fmt.Errorf("%s is not served", method)
	}
	return nil
}

// cloned is a copy that may be changed.
func cloned(req *pb.TxnRequest) *pb.TxnRequest {
	ops := func(ops []*pb.RequestOp) []*pb.RequestOp {
		ops = slices.Clone(ops)
		for i, op := range ops {
			if in := op.GetRequestTxn(); in != nil {
				ops[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: cloned(in)}}
			}
		}
		return ops
	}
	return &pb.TxnRequest{Compare: slices.Clone(req.Compare), Success: ops(req.Success), Failure: ops(req.Failure)}
}

func writes(req *pb.TxnRequest) bool {
	return slices.ContainsFunc(slices.Concat(req.Success, req.Failure), func(op *pb.RequestOp) bool {
		return op.GetRequestPut() != nil || op.GetRequestDeleteRange() != nil || op.GetRequestTxn() != nil
	})
}

// leasesOf checks those of all puts, before anything is carried out.
func (s *server) leasesOf(req *pb.TxnRequest, keys map[string]*mvccpb.KeyValue) error {
	ops, _ := s.branch(req, keys)
	for _, op := range ops {
		if put := op.GetRequestPut(); put.GetLease() != 0 && s.leases[put.Lease] == nil {
			return rpctypes.ErrLeaseNotFound
		}
		if in := op.GetRequestTxn(); in != nil {
			if err := s.leasesOf(in, keys); err != nil {
				return err
			}
		}
	}
	return nil
}

// branch returns what a transaction does, and whether that is for its success.
func (s *server) branch(req *pb.TxnRequest, keys map[string]*mvccpb.KeyValue) (ops []*pb.RequestOp, succeeded bool) {
	for _, c := range req.Compare {
		found := selected(keys, string(c.Key), string(c.RangeEnd))
		var same bool
		switch v := c.TargetUnion.(type) {
		case *pb.Compare_CreateRevision:
			same = v.CreateRevision == 0 && len(found) == 0
			for _, kv := range found {
				same = kv.CreateRevision == v.CreateRevision
			}
		case *pb.Compare_ModRevision:
			same = v.ModRevision == 0 && len(found) == 0 || len(found) == 1 && found[0].ModRevision == v.ModRevision
		case *pb.Compare_Value:
			same = len(found) == 1 && string(found[0].Value) == string(v.Value)
		}
		if !same {
			return req.Failure, false
		}
	}
	return req.Success, true
}

func (s *server) txn(req *pb.TxnRequest, keys map[string]*mvccpb.KeyValue) *pb.TxnResponse {
	ops, succeeded := s.branch(req, keys)
	resp := &pb.TxnResponse{Succeeded: succeeded}
	for _, op := range ops {
		switch op := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{
				ResponseRange: ranged(op.RequestRange, keys),
			}})
			continue
		case *pb.RequestOp_RequestPut:
			put := op.RequestPut
			if owner := ownerOf(put.Value); s.ended[owner] {
				s.fail("a ghost of %s: %s", owner, put.Key)
			}
			if place := keys[placeOf(put.Key)]; isFloor(put.Key) && place != nil && s.waits(place) {
				s.fail("%s waits, and puts %s", place.Key, put.Key)
			}
			kv := &mvccpb.KeyValue{
				Key: put.Key, Value: put.Value, Lease: put.Lease, ModRevision: s.rev, CreateRevision: s.rev,
			}
			if old := s.keys[string(put.Key)]; old != nil {
				kv.CreateRevision = old.CreateRevision
			}
			s.keys[string(put.Key)] = kv
		case *pb.RequestOp_RequestDeleteRange:
			if key := string(op.RequestDeleteRange.Key); s.keys[key] != nil {
				for h := range s.holds {
					if h.believes && h.owner == ownerOf(s.keys[key].Value) {
						s.fail("%s is deleted, and %s believes", key, h.owner)
					}
				}
				s.remove(key)
			}
		case *pb.RequestOp_RequestTxn:
			resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{
				ResponseTxn: s.txn(op.RequestTxn, keys),
			}})
			continue
		}
		resp.Responses = append(resp.Responses, &pb.ResponseOp{})
	}
	return resp
}

// ownerOf is the owner in the value of a place or a floor.
func ownerOf(value []byte) string {
	owner, _, _ := strings.Cut(string(value), labelMark)
	owner, _, _ = strings.Cut(owner, secondsMark)
	return owner
}

// waits reports whether a place has another one in its way.
func (s *server) waits(place *mvccpb.KeyValue) bool {
	queue, _ := ofQueue(string(place.Key))
	before := places(queue, isShared(place.Key))
	return slices.ContainsFunc(selected(s.keys, before.from, before.end), func(kv *mvccpb.KeyValue) bool {
		return kv.CreateRevision < place.CreateRevision
	})
}

func selected(keys map[string]*mvccpb.KeyValue, from, end string) (kvs []*mvccpb.KeyValue) {
	for key, kv := range keys {
		if key == from || end != "" && from <= key && key < end {
			kvs = append(kvs, kv)
		}
	}
	slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(string(a.Key), string(b.Key)) })
	return kvs
}

func ranged(req *pb.RangeRequest, keys map[string]*mvccpb.KeyValue) *pb.RangeResponse {
	kvs := slices.DeleteFunc(selected(keys, string(req.Key), string(req.RangeEnd)), func(kv *mvccpb.KeyValue) bool {
		return req.MaxCreateRevision > 0 && kv.CreateRevision > req.MaxCreateRevision
	})
	resp := &pb.RangeResponse{Count: int64(len(kvs))}
	if req.SortTarget == pb.RangeRequest_CREATE && req.SortOrder != pb.RangeRequest_NONE {
		slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
		if req.SortOrder == pb.RangeRequest_DESCEND {
			slices.Reverse(kvs)
		}
	}
	if resp.More = req.Limit > 0 && len(kvs) > int(req.Limit); resp.More {
		kvs = kvs[:req.Limit]
	}
	if !req.CountOnly {
		resp.Kvs = kvs
	}
	return resp
}

// searchWatch is a watch of one client, which may miss what it is for.
type searchWatch struct {
	c    *searchClient
	key  string
	news chan news
}

func (w *searchWatch) tell(is watchState, rev int64) {
	if w.c.cut || w.c.dead || !w.c.sure && w.c.s.draw.IntN(20) == 0 {
		return
	}
	late := time.Duration(w.c.s.draw.IntN(50)) * time.Millisecond
	time.AfterFunc(late, func() {
		select {
		case w.news <- news{is, rev}:
		default:
		}
	})
}

// searchClient is a Backend and its network.
type searchClient struct {
	*Backend
	s    *server
	sure bool // its network has no faults

	// Guarded by s.mu.
	sends    sender // makes its requests: see onRequest
	cut      bool   // from the network
	dead     bool   // cut off for good
	sessions map[*lease]bool
}

func newSearchClient(s *server, id string, strict bool) *searchClient {
	c := &searchClient{s: s, sessions: map[*lease]bool{}}
	c.sends = c.send
	p := &pool{timeout: 3 * time.Second, send: c.request, agreeing: make(chan struct{}, 1)}
	p.life, p.end = context.WithCancel(context.Background())
	c.Backend = &Backend{
		client: clientv3.NewCtxClient(context.Background()), opts: Options{StrictExpiry: strict, Timeout: p.timeout},
		keys: keys{"p/1/"}, id: id, pool: p, watches: c, beat: c.keepAlive,
		leases: map[int64]*lease{}, inUse: map[string]*hold{},
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

func (c *searchClient) isCut() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.cut || c.dead
}

func (c *searchClient) die() { c.s.do(func() { c.dead = true }) }

func (c *searchClient) deletion(key string) (<-chan news, func()) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	w := &searchWatch{c, key, make(chan news, 3)}
	c.s.watches[w] = true
	w.tell(confirmed, c.s.rev)
	if !c.sure && c.s.draw.IntN(10) == 0 {
		w.tell(failed, 0)
	}
	return w.news, func() { c.s.do(func() { delete(c.s.watches, w) }) }
}

// keepAlive is a beat: the lease and its key are there.
func (c *searchClient) keepAlive(l *lease) (time.Time, error) {
	since := time.Now()
	c.s.do(func() { c.sessions[l] = true })
	time.Sleep(c.s.upTo(100 * time.Millisecond))
	if c.isCut() || !c.sure && c.s.random(10) == 0 {
		time.Sleep(c.s.upTo(time.Second))
		return since, &noAnswerError{"no answer"}
	}
	c.s.mu.Lock()
	on, key := c.s.leases[l.id], c.s.keys[l.key]
	if on != nil {
		on.renew()
	}
	c.s.mu.Unlock()
	time.Sleep(c.s.upTo(100 * time.Millisecond))
	if on == nil || key == nil || key.CreateRevision != l.revision {
		return since, session.ErrGone
	}
	return since, nil
}

// judge fails if a session is believed to be gone with all that was on it, and is not.
func (c *searchClient) judge() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for l := range c.sessions {
		if l.IsGone() && c.s.leases[l.id] != nil {
			c.s.fail("%s believes that its session is gone", c.id)
		}
	}
}

// unused fails if a key is still in use when all attempts are over.
func (c *searchClient) unused() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for key := range c.inUse {
		c.s.fail("%s is over, and in use", key)
	}
}

// request makes a request.
func (c *searchClient) request(
	ctx context.Context, in line, method string, args any, reply answer, opts ...grpc.CallOption,
) (fate, error) {
	c.s.mu.Lock()
	send := c.sends
	c.s.mu.Unlock()
	return send(ctx, in, method, args, reply, opts...)
}

// send is a request on its way.
func (c *searchClient) send(
	ctx context.Context, _ line, method string, args any, reply answer, _ ...grpc.CallOption,
) (f fate, err error) {
	s, lost, took := c.s, &noAnswerError{"no answer"}, 30*time.Millisecond
	if ctx.Err() != nil {
		return f, ctx.Err()
	}
	again := func() {
		_ = s.apply(method, args, nil)
	}
	late := func() { time.AfterFunc(s.upTo(2*searchTTL), again) }
	wait := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	unknown := func() (fate, error) {
		return fate{carriedOut: true, underWay: true}, cmp.Or(wait(s.upTo(time.Second)), error(lost))
	}
	time.Sleep(s.upTo(30 * time.Millisecond))
	if c.isCut() {
		return unknown()
	}
	fault := s.random(20)
	if c.sure {
		fault = -1
	}
	switch fault {
	case 0: // it arrives late
		late()
		return unknown()
	case 1: // the answer is lost
		again()
		return unknown()
	case 2: // one of two copies is late
		late()
		f = fate{carriedOut: true, underWay: true}
	case 3: // so is the answer to the first
		again()
		f = fate{carriedOut: true, underWay: true}
	case 4: // the answer is slow
		took = 3 * time.Second
	}
	if err = s.apply(method, args, reply); err != nil {
		return f, err
	}
	if err = wait(s.upTo(took)); err != nil { // the caller knows no more
		return fate{carriedOut: true, underWay: true}, err
	}
	return f, nil
}

// world is one history.
type world struct {
	*server
	tokens uint64
}

// searchHold is what somebody believes, or a MinHold keeps.
type searchHold struct {
	owner    string
	lease    int64
	created  int64
	shared   bool
	strict   bool
	believes bool
	over     chan struct{} // closed when its time is over, or it was told so
	keeps    time.Time
	kept     bool         // its release was to keep it
	again    driver.Grant // of the same request, made again
}

func (s *server) fail(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// believe notes that somebody was granted the lock.
func (w *world) believe(h *searchHold, token uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-h.over:
		return
	default:
	}
	if !w.byHand[h.created].IsZero() || w.leases[h.lease] == nil && !h.strict {
		return // it is told soon
	}
	for other := range w.holds {
		if other.believes || time.Now().Before(other.keeps) {
			w.beside(h, other)
		}
	}
	if !h.shared && token <= w.tokens {
		w.fail("token %d after %d", token, w.tokens)
	}
	w.tokens = max(w.tokens, token)
	h.believes, w.holds[h] = true, true
}

// beside fails if two may not hold at one time. s.mu is held.
func (w *world) beside(h, other *searchHold) {
	if h != other && (!h.shared || !other.shared) {
		w.fail("%s holds beside %s, which believes: %v, and keeps it for %v", h.owner, other.owner, other.believes,
			time.Until(other.keeps))
	}
}

// left fails if there is anything of a hold but its void key, or, if a release was to keep it, its place. s.mu is held.
func (w *world) left(h *searchHold) {
	for key, kv := range w.keys {
		if ownerOf(kv.Value) == h.owner && (!h.kept || !isFloor(kv.Key)) {
			w.fail("%s is over, and %s is left", h.owner, key)
		}
	}
}

// nothing notes that nothing is left of an attempt, nor can come.
func (w *world) nothing(h *searchHold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended[h.owner] = true
	w.left(h)
}

// released notes that a release was answered, which was to keep the lock, until then, or to end it.
func (w *world) released(h *searchHold, kept bool, keeps time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.kept = kept
	alone := undoOf(h.again) == nil
	if alone {
		w.left(h)
	}
	if !time.Now().Before(keeps) {
		w.ended[h.owner] = alone
		return
	}
	h.keeps = keeps
	for other := range w.holds {
		if other.believes {
			w.beside(other, h)
		}
	}
}

// doubt ends a belief, also one that has not begun.
func (w *world) doubt(h *searchHold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.believes = false
	close(h.over)
}

// revoked is what a leader does that wakes up. Whoever has no StrictExpiry is told at once, or holds beside
// the next one, as documented. s.mu is held.
func (w *world) revoked(lease int64) {
	for h := range w.holds {
		if h.lease == lease && !h.strict {
			h.believes = false
		}
	}
	w.endLease(lease)
}

// deleteByHand deletes the key of one who holds or waits, or that of a session. Its holder learns of it with its
// next renewal, as documented. s.mu is held.
func (w *world) deleteByHand() {
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(w.keys)), func(key string) bool {
		return isFloor([]byte(key)) || strings.Contains(key, "/"+voidMark)
	})
	if len(keys) == 0 {
		return
	}
	key := keys[w.draw.IntN(len(keys))]
	kv := w.keys[key]
	for h := range w.holds {
		if h.created == kv.CreateRevision {
			h.believes = false
		}
	}
	w.byHand[kv.CreateRevision] = time.Now()
	w.change()
	w.remove(key)
}

// expected fails if an error says that asking again does not help, or that the lock is held.
func (w *world) expected(err error) {
	for _, is := range []error{
		nil, driver.ErrUnavailable, driver.ErrClosed, driver.ErrLost, context.DeadlineExceeded,
	} {
		if errors.Is(err, is) {
			return
		}
	}
	w.do(func() { w.fail("unexpected: %v", err) })
}

// work makes attempts, one after the other.
func (w *world) work(c *searchClient, worker, n int) {
	for i := range n {
		time.Sleep(w.upTo(2 * time.Second))
		h := &searchHold{
			owner: fmt.Sprintf("%s%d-%d", c.id, worker, i), shared: w.random(3) == 0, strict: c.opts.StrictExpiry,
			over: make(chan struct{}),
		}
		end := sync.OnceFunc(func() { w.doubt(h) })
		req := driver.Request{
			Name: "n", Owner: h.owner, TTL: searchTTL, Wait: w.random(2) == 0, Shared: h.shared,
			Lost: func() {
				time.Sleep(w.upTo(500 * time.Millisecond))
				end()
			},
		}
		if w.random(3) == 0 {
			req.MinHold = w.upTo(8 * time.Second)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second+w.upTo(3*searchTTL))
		g, err := c.Acquire(ctx, req)
		cancel()
		c.judge()
		w.expected(err)
		switch {
		case g.Hold != nil && err == nil:
			if w.hold(c, h, req, g, end) {
				break
			}
			if g.Hold = nil; undoOf(h.again) == nil {
				continue
			}
			time.Sleep(time.Until(h.keeps)) // else the repeated request would take back what is kept
		case undoOf(g) != nil && w.random(3) == 0:
			_ = c.askAgain(h, req)
		}
		gone := true
		for _, undo := range []func(context.Context) error{undoOf(g), undoOf(h.again)} {
			if undo == nil {
				continue
			}
			for err = undo(context.Background()); err != nil && c.ctx.Err() == nil; err = undo(context.Background()) {
				time.Sleep(time.Second)
			}
			gone = gone && err == nil
		}
		if gone {
			w.nothing(h)
		}
	}
}

// undoOf takes back what a request may have left; nil: it left nothing.
func undoOf(g driver.Grant) func(context.Context) error {
	switch {
	case g.Hold != nil:
		return g.Hold.Undo
	case g.Refused != nil:
		return g.Refused.Undo
	}
	return nil
}

// askAgain makes a request once more. What that leaves is taken back when the first is over.
func (c *searchClient) askAgain(h *searchHold, req driver.Request) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	h.again, err = c.Acquire(ctx, req)
	return err
}

// hold believes in a grant, renews it, and releases it, or leaves that to an Undo, for which the time has
// come then.
func (w *world) hold(c *searchClient, h *searchHold, req driver.Request, g driver.Grant, end func()) (undo bool) {
	of := g.Hold.(*hold)
	h.lease, h.created, h.keeps = of.l.id, of.created, time.Now().Add(req.MinHold)
	// The last look at the place is that of the floors, whose answer may be slow. Without them it is the one that found
	// it first, and up to four requests and a proof of the session may follow.
	longest := 16 * time.Second
	if h.strict || req.MinHold > 0 {
		longest = 4 * time.Second
	}
	w.mu.Lock()
	if at := w.byHand[h.created]; !at.IsZero() && time.Since(at) > longest {
		w.fail("%s was granted what had been deleted %v before", h.owner, time.Since(at))
	}
	w.mu.Unlock()
	if of.l.Err() != nil {
		time.Sleep(2 * time.Second)
		select {
		case <-h.over:
		default:
			w.do(func() { w.fail("%s was granted on a session that is over, and not told", h.owner) })
		}
		return true
	}
	w.do(func() { w.holds[h] = true }) // its MinHold keeps others out already
	if w.random(8) == 0 {              // the client pauses, and MinHold counts from when it goes on, if it is released
		time.Sleep(w.upTo(searchTTL))
	}
	keeps := time.Now().Add(req.MinHold)
	until := func(v driver.Validity) time.Duration { return time.Until(v.Since.Add(v.TTL - time.Millisecond)) }
	if until(g.Validity) <= 0 {
		w.do(func() { h.keeps = time.Time{} })
		return true // the engine gives it back
	}
	w.believe(h, g.Token)
	over := time.AfterFunc(until(g.Validity), end)
	defer over.Stop()
	if w.random(6) == 0 { // it is asked for again
		err := c.askAgain(h, req)
		w.mu.Lock()
		switch again := h.again; {
		case !h.believes || of.l.Err() != nil || w.leases[h.lease] == nil:
		case again.Refused != nil:
			w.fail("%s has its own lock in its way", h.owner)
		case err == nil:
			if its := again.Hold.(*hold); its.key != of.key || its.created != of.created || again.Token != g.Token {
				w.fail("%s was granted another lock: %s, %s", h.owner, of.key, its.key)
			}
		}
		w.mu.Unlock()
	}
	lasts := searchTTL
	if w.random(4) == 0 {
		lasts = 3 * searchTTL
	}
	done, renewal := time.After(w.upTo(lasts)), time.NewTicker(searchTTL/3)
	defer renewal.Stop()
	released, blind := false, 0
	for ended := false; !ended; {
		select {
		case <-h.over:
			ended = true
		case <-done:
			ended, released = true, true
		case <-renewal.C:
			w.mu.Lock()
			missing := !w.byHand[h.created].IsZero()
			w.mu.Unlock()
			ctx, cancel := context.WithTimeout(context.Background(), searchTTL/4)
			v, err := g.Hold.Renew(ctx)
			cancel()
			if err == nil {
				over.Reset(until(v))
			}
			if err == nil && missing && !c.isCut() {
				blind++
			}
		}
	}
	end()
	if blind > 3 { // one that is not answered does not tell
		w.do(func() { w.fail("%s was deleted, and renewed %d times", h.owner, blind) })
	}
	for keep := time.Until(keeps); released && c.ctx.Err() == nil; keep = time.Until(keeps) {
		var asks time.Duration // as the engine does
		if keep > 0 {
			asks = keep + driver.Drift(keep)
		}
		err := g.Hold.Release(context.Background(), asks)
		if err == nil {
			w.released(h, keep > 0, keeps)
			return false
		}
		w.expected(err)
		if errors.Is(err, driver.ErrLost) {
			w.mu.Lock()
			alive := w.leases[h.lease] != nil && w.byHand[h.created].IsZero()
			if alive && (req.MinHold == 0 || keep > 5*time.Second) {
				w.fail("%s was not lost: %v", h.owner, err)
			}
			w.mu.Unlock()
			break
		}
		time.Sleep(time.Second)
	}
	time.Sleep(time.Until(h.keeps))
	return true
}

// history plays one, and returns what was wrong, and how often the lock was granted.
func history(t *testing.T, seed uint64, bug string) (wrong []string, granted int) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(seed, bug)
		w := &world{server: s}
		var all sync.WaitGroup
		quiet, settle := context.WithCancel(context.Background())
		doom := time.Duration(0)
		if w.random(3) == 0 {
			doom = w.upTo(10 * searchTTL)
		}
		for id := range 4 {
			c := newSearchClient(s, string(rune('A'+id)), w.random(2) == 0)
			var workers sync.WaitGroup
			for worker := range 1 + w.random(2) {
				workers.Go(func() { w.work(c, worker, 12) })
			}
			all.Go(func() { // it is cut off now and then
				for quiet.Err() == nil {
					for i, longest := range []time.Duration{8 * searchTTL, 2 * searchTTL} {
						s.do(func() { c.cut = i > 0 })
						select {
						case <-time.After(w.upTo(longest)):
						case <-quiet.Done():
						}
					}
				}
				s.do(func() { c.cut = false })
			})
			all.Go(func() {
				switch {
				case doom > 0: // all die at one time
					time.Sleep(doom)
					c.die()
				case w.random(4) == 0: // it dies, or is closed
					time.Sleep(w.upTo(20 * searchTTL))
					if w.random(2) == 0 {
						c.die()
					}
				default:
					workers.Wait()
					c.unused()
				}
				assert.NoError(t, c.Close())
				workers.Wait()
			})
		}
		all.Go(func() { // leaders wake up
			for quiet.Err() == nil {
				select {
				case <-time.After(w.upTo(4 * searchTTL)):
				case <-quiet.Done():
				}
				s.mu.Lock()
				if s.draw.IntN(2) == 0 {
					w.deleteByHand()
				}
				for _, id := range slices.Sorted(maps.Keys(s.leases)) {
					if id <= s.last && s.draw.IntN(3) == 0 { // a session: it can have missed no renewal of another
						w.revoked(id)
						break
					}
				}
				s.mu.Unlock()
			}
		})
		time.Sleep(20 * searchTTL)
		settle()
		all.Wait()
		time.Sleep(4 * searchTTL) // late requests
		last := newSearchClient(s, "Z", false)
		last.sure = true
		s.do(func() { s.calm = true })
		for _, shared := range []bool{w.random(2) == 0, false} {
			req := driver.Request{
				Name: "n", Owner: fmt.Sprint("last", shared), TTL: searchTTL, Wait: w.random(2) == 0, Shared: shared,
				Lost: func() {},
			}
			// The floors of all who have died take one TTL.
			ctx, cancel := context.WithTimeout(t.Context(), searchTTL+time.Second)
			g, err := last.Acquire(ctx, req)
			for ; g.Refused != nil && ctx.Err() == nil; g, err = last.Acquire(ctx, req) {
				time.Sleep(100 * time.Millisecond)
			}
			cancel()
			if err != nil || g.Hold == nil {
				w.fail("it is not free: %v", err)
				break
			}
			require.NoError(t, g.Hold.Release(t.Context(), 0))
		}
		assert.NoError(t, last.Close())
		time.Sleep(4 * searchTTL)
		s.mu.Lock()
		defer s.mu.Unlock()
		for key := range s.keys {
			if !strings.HasSuffix(key, "~/tokens") {
				w.fail("%s is left", key)
			}
		}
		wrong, granted = w.wrong, len(w.holds)
	})
	return wrong, granted
}

// bugs change requests to what a package would send that has one.
var bugs = map[string]func(*pb.TxnRequest){
	"no floor": func(req *pb.TxnRequest) { dropPuts(req, func(put *pb.PutRequest) bool { return isFloor(put.Key) }) },
	"no MinHold": func(req *pb.TxnRequest) {
		dropPuts(req, func(put *pb.PutRequest) bool { return strings.HasSuffix(string(put.Key), "+") })
	},
	"no void key": func(req *pb.TxnRequest) {
		dropPuts(req, func(put *pb.PutRequest) bool { return strings.Contains(string(put.Key), "/~") })
	},
	"a floor that does not compare its place": func(req *pb.TxnRequest) {
		if len(req.Success) == 0 {
			return
		}
		if put := req.Success[0].GetRequestPut(); put != nil && isFloor(put.Key) {
			req.Compare = nil
		}
	},
	"a sweep that compares nothing": func(req *pb.TxnRequest) {
		for _, op := range req.Success {
			if in := op.GetRequestTxn(); in != nil && len(in.Success) > 0 && isFloor(in.Success[0].GetRequestPut().GetKey()) {
				in.Compare = nil
			}
		}
	},
	"a release that does not compare its owner": func(req *pb.TxnRequest) {
		if len(req.Success) > 0 && req.Success[0].GetRequestDeleteRange() != nil {
			req.Compare = nil
		}
	},
	"an entry that looks for nobody": func(req *pb.TxnRequest) {
		req.Compare = slices.DeleteFunc(req.Compare, func(c *pb.Compare) bool { return len(c.RangeEnd) > 0 })
	},
}

// dropPuts makes nothing of puts.
func dropPuts(req *pb.TxnRequest, drop func(*pb.PutRequest) bool) {
	for _, ops := range [][]*pb.RequestOp{req.Success, req.Failure} {
		for i, op := range ops {
			if put := op.GetRequestPut(); put != nil && drop(put) {
				nothing := &pb.RangeRequest{Key: []byte("nothing")}
				ops[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: nothing}}
			}
			if in := op.GetRequestTxn(); in != nil {
				dropPuts(in, drop)
			}
		}
	}
}

func TestQueueInVirtualTime(t *testing.T) { search(t, 40) }

func TestSearchOfTheQueue(t *testing.T) {
	seeds, err := strconv.ParseUint(cmp.Or(os.Getenv("LOCKER_ETCD_SEEDS"), "2000"), 10, 64)
	require.NoError(t, err)
	search(t, seeds)
}

func search(t *testing.T, seeds uint64) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // two threads that fire timers of a bubble end a race test (Go 1.26)
	all := 0
	for seed := range seeds {
		wrong, granted := history(t, seed, "")
		require.Empty(t, wrong, "seed %d", seed)
		all += granted
	}
	assert.Greater(t, all, 10*int(seeds), "granted")
}

// What the search is to find, it finds.
func TestSearchFindsBugs(t *testing.T) {
	for bug := range bugs {
		found := false
		for seed := uint64(0); !found && seed < 2000; seed++ {
			wrong, _ := history(t, seed, bug)
			if found = len(wrong) > 0; found {
				t.Logf("%s: seed %d: %s", bug, seed, wrong[0])
			}
		}
		assert.True(t, found, bug)
	}
}
