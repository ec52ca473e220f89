package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// Endpoints of two clusters in one list let two clients hold a lock, one in each. Every answer names the cluster,
// so the pool asks each member on each new connection before it sends anything else, and compares every answer.

// clusterError is the answer of a member that belongs to another cluster than one that answered before.
type clusterError struct {
	addr, before string // the endpoints
	is, was      uint64 // their clusters
}

func (e *clusterError) Error() string {
	return fmt.Sprintf("%s belongs to cluster %x, and %s to cluster %x: a lock of one does not exclude those of the "+
		"other. Give endpoints of one cluster only; after a restore from a backup, restart all clients",
		e.addr, e.is, e.before, e.was)
}

// restTime is how long the members are waited for at least that have not said where they belong, when one has.
const restTime = 200 * time.Millisecond

func isOtherCluster(err error) bool {
	var e *clusterError
	return errors.As(err, &e)
}

// newMember returns a member on a connection of its own.
func (p *pool) newMember(addr string) (*member, error) {
	conn, err := p.driver.Dial(addr)
	if err != nil {
		return nil, err
	}
	m := &member{pool: p, addr: addr, conn: conn, compared: -1, joining: make(chan struct{}, 1)}
	p.start(m.countConnections)
	return m, nil
}

// countConnections notes each change of the connection's state: another server may answer on the next one.
func (m *member) countConnections() {
	for s := m.conn.GetState(); s != connectivity.Shutdown; s = m.conn.GetState() {
		if !m.conn.WaitForStateChange(m.pool.life, s) {
			return
		}
		m.pool.mu.Lock()
		m.changes++
		m.pool.mu.Unlock()
	}
}

// join is connect, and returns nil only if the member belongs to the cluster of the others.
func (m *member) join(ctx context.Context) error {
	if err := m.connect(ctx); err != nil {
		return err
	}
	if _, compared := m.joined(); compared {
		return nil
	}
	select {
	case m.joining <- struct{}{}:
		defer func() { <-m.joining }()
	case <-ctx.Done():
		return ctx.Err()
	}
	changes, compared := m.joined()
	if compared {
		return nil // another request has waited for the same
	}
	// Status is answered by the member alone: also while there is no leader, unless ctx demands one.
	resp, err := m.status(ctx)
	if code := status.Code(err); code == codes.Unimplemented || code == codes.PermissionDenied {
		// A proxy lets nobody ask: its member does not say where it belongs before its first answer.
		resp, err = nil, nil
	}
	if err != nil {
		return err
	}
	p := m.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	err = p.compare(m, resp.GetHeader())
	if err == nil {
		m.compared = changes
	}
	return err
}

// joined returns how often the connection has changed, and whether the member was compared since.
func (m *member) joined() (changes int, compared bool) {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	return m.changes, m.changes == m.compared
}

// status asks the member itself for its state, over the connection that there is.
func (m *member) status(ctx context.Context) (*pb.StatusResponse, error) {
	return pb.NewMaintenanceClient(m.conn).Status(m.on(ctx), &pb.StatusRequest{}, grpc.WaitForReady(false))
}

// compare returns an error if an answer of m comes from another cluster than the first answer did. mu is held.
func (p *pool) compare(m *member, h *pb.ResponseHeader) error {
	switch id := h.GetClusterId(); {
	case id == 0: // not etcd itself, and it does not say
	case p.cluster == 0:
		p.cluster, p.first = id, m.addr
	case p.cluster != id:
		return &clusterError{m.addr, p.first, id, p.cluster}
	}
	return nil
}

// agree compares the clusters of all members that answer, soon after the first. It does so until it has succeeded
// once: before that, no lock is granted. A member that does not answer is compared when it is to be used.
func (p *pool) agree(ctx context.Context) error {
	select {
	case p.agreeing <- struct{}{}:
		defer func() { <-p.agreeing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.agreed {
		return nil
	}
	members := p.all()
	limited, cancel := context.WithTimeout(ctx, p.timeout/3)
	defer cancel()
	answers := make(chan error, len(members))
	for _, m := range members {
		go func() { answers <- m.join(limited) }()
	}
	var differ error
	for range members {
		err := <-answers
		if err == nil && !p.agreed {
			p.agreed = true
			defer time.AfterFunc(max(restTime, p.timeout/15), cancel).Stop()
		}
		if isOtherCluster(err) {
			differ = err
		}
	}
	if differ != nil {
		// Which one is right, nobody knows: the next caller compares all of them again.
		p.mu.Lock()
		defer p.mu.Unlock()
		p.agreed, p.cluster = false, 0
		for _, m := range p.members {
			m.compared = -1
		}
	}
	return differ
}
