package etcd

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
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
	m := &member{pool: p, addr: addr, conn: conn, compared: -1}
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
	p := m.pool
	p.mu.Lock()
	changes, compared := m.changes, m.compared
	p.mu.Unlock()
	if compared == changes {
		return nil
	}
	// Status is answered by the member alone, so also while there is no leader.
	status, err := m.status(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	err = p.compare(m, status.Header)
	if err == nil {
		m.compared = changes
	}
	return err
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

// agree compares the clusters of all members that answer. It does so until it has succeeded once: before that, no
// lock is granted. A member that does not answer is compared when it is to be used.
func (p *pool) agree(ctx context.Context) error {
	p.agreeing.Lock()
	defer p.agreeing.Unlock()
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
		p.agreed = p.agreed || err == nil
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
