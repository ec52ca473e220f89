package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/batch"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/session"
)

// lease is a session: an etcd lease on which the keys of many locks are. A lease for each lock would cost two
// more proposals per lock. It is kept alive while it is used, and for some time after.
type lease struct {
	*session.Session
	b       *Backend
	seconds int64 // the TTL asked for
	looks   *batch.Batcher[string, int64]

	// Set before it is open.
	id       int64
	ttl      time.Duration // granted
	key      string        // is there for as long as the lease is
	revision int64         // at which the key was created

	// Used by the beats alone.
	on        *member // to which the stream goes
	stream    pb.Lease_LeaseKeepAliveClient
	endStream context.CancelFunc
	misses    int // in a row without an answer

	voids int // guarded by b.mu
}

const (
	// idleTime is how long a session that nobody uses is kept.
	idleTime = time.Minute
	// maxVoids is how many void keys a session may leave before another takes its place (R25).
	maxVoids = 64
	// keysAtOnce is how many operations a transaction has at most: etcd takes 128.
	keysAtOnce = 100
	// revokeTimeout bounds how long Close waits for etcd, which it does twice.
	revokeTimeout = 700 * time.Millisecond
)

// join returns a session for the TTL, and makes it if there is none. Its user calls Leave.
func (b *Backend) join(ctx context.Context, seconds int64) (*lease, error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, driver.ErrClosed
	}
	l := b.leases[seconds]
	if l == nil || !l.Join() {
		l = &lease{Session: session.New(idleTime), b: b, seconds: seconds}
		l.looks = batch.New(l.Context(), batch.Options{
			Max: keysAtOnce, Flights: 1, Most: 4, Timeout: b.opts.Timeout, Slow: b.opts.Timeout / 3, Patient: true,
		}, nil, l.look)
		l.Join()
		b.leases[seconds] = l
		b.work.Go(l.run)
	}
	b.mu.Unlock()
	if err := l.Ready(ctx); err != nil {
		l.Leave()
		return nil, err
	}
	return l, nil
}

// run is the life of a session, on a goroutine of its own.
func (l *lease) run() {
	defer context.AfterFunc(l.b.ctx, func() { l.End(driver.ErrClosed) })()
	defer l.looks.Wait()
	if err := l.open(); err != nil {
		l.forget()
		l.End(err)
		l.Ended() // there never was one
		return
	}
	l.b.work.Go(l.watch)
	l.Keep(func() (time.Time, error) { return l.b.beat(l) })
	// All holders have been notified: revoking lets the next ones in, whether it is answered or not.
	l.hangUp()
	l.forget()
	l.revoke()
}

// forget makes that a TTL that is not asked for again leaves nothing here (R25).
func (l *lease) forget() {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if l.b.leases[l.seconds] == l {
		delete(l.b.leases, l.seconds)
	}
}

// retry is the pause after a beat that failed.
func (l *lease) retry() time.Duration { return max(l.ttl/16, 100*time.Millisecond) }

// open has etcd grant a lease. It is not the wait of the first caller alone: others may come to wait for the
// same, so it has a context of its own. Etcd chooses the ID: nothing that is late makes a lease anew that is
// gone for certain, and no late key finds it (R7).
func (l *lease) open() error {
	b, since := l.b, time.Now() // R1
	if err := b.pool.agree(l.Context()); err != nil {
		return err
	}
	granted, err := b.pool.grantLease(l.Context(), 0, l.seconds)
	if err != nil {
		return err
	}
	l.id, l.ttl, l.key = granted.ID, time.Duration(granted.TTL)*time.Second, b.keys.session(granted.ID)
	if granted.TTL < l.seconds {
		return fmt.Errorf("it granted a lease of %v instead of %ds", l.ttl, l.seconds)
	}
	put, get := []clientv3.Op{clientv3.OpPut(l.key, "", l.with())}, []clientv3.Op{clientv3.OpGet(l.key)}
	resp, _, err := b.pool.txn(l.Context(), ordinary, []clientv3.Cmp{isAbsent(l.key)}, put, get)
	if err != nil {
		return notOfSession(err) // a server that has too much to do
	}
	if l.revision = createRevision(resp.Responses[0]); l.revision == 0 { // else a repeated request (R11)
		l.revision = resp.Header.Revision
	}
	l.Open(since, l.ttl, session.Terms{
		// A lease that the engine renews just before a beat has at least 3/4 of a TTL ahead of it, and the
		// engine looks again after 1/3.
		Every: l.ttl / 4, Retry: l.retry(), Silence: l.ttl / 2, Least: l.ttl / 2,
		Refused: func(err error) bool { return outcomeOf(err) == refused },
	})
	return nil
}

// with puts a key on the session's lease.
func (l *lease) with() clientv3.OpOption { return clientv3.WithLease(clientv3.LeaseID(l.id)) }

// errTerm: the lease was renewed by a leader that may have been replaced.
var errTerm = errors.New("the leader changed while the session was kept alive")

// beat keeps the lease alive once, and returns from when that counts. A member that does not answer within a
// fraction of the TTL may wait for a leader that hangs, though the others have elected another: the next
// member is asked at once.
func (l *lease) beat() (since time.Time, err error) {
	proven, _ := l.Validity()
	ctx, cancel := context.WithDeadline(l.Context(), proven.Since.Add(proven.TTL))
	defer cancel()
	for range l.b.pool.all() {
		if since, err = l.ask(ctx); err == nil {
			l.misses = 0
			return since, nil
		}
		if l.hangUp(); ctx.Err() != nil || errors.Is(err, session.ErrGone) {
			break
		}
		if !errors.Is(err, errTerm) {
			l.misses++
			l.b.pool.avoid(l.on)
		}
	}
	if l.Context().Err() != nil {
		err = context.Cause(l.Context())
	}
	return since, err
}

// ask asks one member to keep the lease alive, and a majority after that.
//
// A leader renews leases without asking anybody, and one that was cut off or stopped may not know that it was
// replaced: its successor counts from its election, and has granted leases that the old one has never heard
// of. So a majority is asked. If both answers come from one term, the leader was the leader when it renewed;
// and whether the lease is gone is what the majority says (R24).
func (l *lease) ask(ctx context.Context) (since time.Time, err error) {
	m, _, limit := l.b.pool.pick(1)
	limit = max(min(l.ttl/16, time.Second), min(limit, l.ttl/8)) << min(l.misses, 8)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	since, term, err := l.renew(limited, m)
	if err == nil || leaseGone(err) {
		revision, termThen, readErr := l.confirm(limited)
		switch {
		case readErr != nil:
			err = readErr
		case revision != l.revision:
			return since, session.ErrGone
		case err == nil && termThen != term:
			err = errTerm
		}
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s has not answered within %v", m.addr, limit)
	}
	return since, err
}

// confirm asks a majority at which revision the session's key was created, and returns the term of the answer.
//
// After an answer that was late, it has the question go through the log, as a write that does nothing: a
// member of etcd 3.4 that has asked a leader which hangs for a read keeps all reads waiting for some 6 s. It
// is a deletion, since that is let through when the store is full.
func (l *lease) confirm(ctx context.Context) (revision int64, term uint64, err error) {
	get := []clientv3.Op{clientv3.OpGet(l.key, clientv3.WithKeysOnly())}
	var resp *clientv3.TxnResponse
	if l.misses > 0 {
		never := []clientv3.Cmp{clientv3.Compare(clientv3.Version(l.key), "<", 0)}
		resp, _, err = l.b.pool.txn(ctx, urgent, never, []clientv3.Op{clientv3.OpDelete(l.key)}, get)
	} else {
		resp, err = l.b.pool.read(ctx, urgent, get...)
	}
	if err != nil {
		return 0, 0, err
	}
	return createRevision(resp.Responses[0]), resp.Header.RaftTerm, nil
}

// hangUp ends the stream of keep-alives.
func (l *lease) hangUp() {
	if l.stream != nil {
		l.endStream()
		l.stream = nil
	}
}

// renew sends one keep-alive, to the member that all requests go to, and returns when it was sent, and the
// term of the member that answered. All are sent on one stream, one at a time: the driver's KeepAliveOnce
// opens a stream for each, and logs in for each, which is a bcrypt for the member, of some 60 ms of its
// processor.
func (l *lease) renew(ctx context.Context, m *member) (since time.Time, term uint64, err error) {
	if l.stream == nil || l.on != m {
		l.hangUp()
		l.on = m
		if err := m.join(ctx); err != nil {
			return since, 0, rpctypes.Error(err)
		}
		life, end := context.WithCancel(m.on(l.Context()))
		stop := context.AfterFunc(ctx, end)
		opened, err := pb.NewLeaseClient(m.conn).LeaseKeepAlive(withLeader(life), grpc.WaitForReady(false))
		stop()
		if err != nil {
			end()
			return since, 0, rpctypes.Error(err)
		}
		l.stream, l.endStream = opened, end
	}
	stop := context.AfterFunc(ctx, l.endStream)
	defer stop()
	since = time.Now() // R1
	var resp *pb.LeaseKeepAliveResponse
	// EOF: the stream is over, and Recv says why.
	if err = l.stream.Send(&pb.LeaseKeepAliveRequest{ID: l.id}); err == nil || errors.Is(err, io.EOF) {
		resp, err = l.stream.Recv()
	}
	if err != nil {
		return since, 0, rpctypes.Error(err)
	}
	switch granted := time.Duration(resp.TTL) * time.Second; {
	case resp.TTL <= 0:
		err = rpctypes.ErrLeaseNotFound
	case granted < l.ttl:
		err = fmt.Errorf("the lease of %v was renewed for %v", l.ttl, granted)
	}
	return since, resp.Header.GetRaftTerm(), err
}

// watch ends the session when its lease is revoked or expires, whoever did it: a leader that was stopped for
// longer than a TTL revokes leases that its successor has kept alive (R24). When a watch begins and when it
// fails, it looks, since the key can have gone before.
func (l *lease) watch() {
	ctx := l.Context()
	for failures := 0; ctx.Err() == nil; failures++ {
		told, stop := l.b.watches.deletion(l.key)
		for is := confirmed; is != failed && ctx.Err() == nil; {
			select {
			case n := <-told:
				is = n.is
			case <-ctx.Done():
				stop()
				return
			}
			if is == confirmed {
				failures = 0
			}
			if is == deleted {
				l.End(session.ErrGone)
				continue
			}
			l.b.work.Go(func() { // what the watch tells meanwhile does not wait for it
				if l.isMissing(ctx, l.key, l.revision) {
					l.End(session.ErrGone)
				}
			})
		}
		stop()
		_ = clock.Sleep(ctx, clock.Jitter(clock.BackOff(failures, firstRewatch, lastRewatch)))
	}
}

// isMissing reports whether a key that was created at revision is certainly not there any more. Ten thousand
// leases that are renewed, or ten thousand waiters, share a few requests per second: a key is missing only if
// somebody has deleted it by hand, or if a watch has not told.
func (l *lease) isMissing(ctx context.Context, key string, revision int64) bool {
	found, err := l.looks.Do(ctx, key)
	return err == nil && found.Value != revision
}

// look returns at which revisions keys were created; 0 for one that is not there. Names are used again: one
// that was created later is not the one that was held.
func (l *lease) look(ctx context.Context, keys []string) ([]int64, error) {
	var gets []clientv3.Op
	for _, key := range keys {
		gets = append(gets, clientv3.OpGet(key, clientv3.WithKeysOnly()))
	}
	resp, err := l.b.pool.read(ctx, urgent, gets...)
	if err != nil {
		return nil, err
	}
	revisions := make([]int64, len(keys))
	for i := range keys {
		revisions[i] = createRevision(resp.Responses[i])
	}
	return revisions, nil
}

// createRevision returns at which revision the key was created that a get was for; 0 if it is not there.
func createRevision(get *pb.ResponseOp) (revision int64) {
	for _, kv := range get.GetResponseRange().GetKvs() {
		revision = kv.CreateRevision
	}
	return revision
}

// revoke ends the lease at etcd, with all that is on it. If that fails, the lease ends with its TTL: it goes
// on trying for so long, since a keep-alive that was in flight may have made it live for longer, but not when
// Close waits.
func (l *lease) revoke() {
	for began, last := time.Now(), false; !l.IsGone(); _ = clock.Sleep(l.b.ctx, l.retry()) {
		closing := l.b.ctx.Err() != nil
		// Its own context: Close has ended that of the backend.
		ctx, cancel := context.WithTimeout(context.Background(), revokeTimeout)
		err := l.b.pool.revokeLease(ctx, l.id)
		cancel()
		switch {
		case err == nil, leaseGone(err):
			l.Ended()
			return
		case last, time.Since(began) > l.ttl:
			return
		}
		last = closing
	}
}
