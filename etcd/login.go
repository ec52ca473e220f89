package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// logins is what the driver logs in by, on the pool's connections, when a token has expired (R26). The driver's own
// would ask by the caller's connection, each request for itself, though a login is a bcrypt for the member, and
// would send the expired token along: etcd 3.4 refuses that, whereupon the driver logs in again, without an end.
type logins struct {
	clientv3.Auth
	pool *pool
}

// login is one that is under way, for all requests that need it.
type login struct {
	ended chan struct{}
	token *clientv3.AuthenticateResponse
	err   error
}

type (
	onMember  struct{} // a context's member
	loggingIn struct{} // a context of a login
)

// on notes in a request's context to which member it goes: a login goes to the same (R23).
func (m *member) on(ctx context.Context) context.Context {
	return context.WithValue(ctx, onMember{}, m)
}

// Authenticate implements a part of [clientv3.Auth].
func (l *logins) Authenticate(ctx context.Context, user, password string) (*clientv3.AuthenticateResponse, error) {
	if ctx.Value(loggingIn{}) != nil {
		// The member refuses the token with which the login was sent. At this error, the driver forgets the
		// token, and sends the login again.
		return nil, rpctypes.ErrAuthNotEnabled
	}
	m := ctx.Value(onMember{}).(*member) //nolint:forcetypeassert // all that is sent has it
	p := l.pool
	p.mu.Lock()
	in := m.login
	if in == nil && p.closed {
		p.mu.Unlock()
		return nil, &noAnswerError{"the client is closed"}
	}
	if in == nil {
		in = &login{ended: make(chan struct{})}
		m.login = in
		p.work.Go(func() { m.logIn(in, user, password) })
	}
	p.mu.Unlock()
	select {
	case <-in.ended:
		return in.token, in.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// logIn logs in once.
func (m *member) logIn(in *login, user, password string) {
	p := m.pool
	ctx, cancel := context.WithTimeout(p.life, p.timeout)
	defer cancel()
	remote := clientv3.NewAuthFromAuthClient(pb.NewAuthClient(m.conn), &p.driver)
	in.token, in.err = remote.Authenticate(context.WithValue(m.on(ctx), loggingIn{}, true), user, password)
	p.mu.Lock()
	m.login = nil
	p.mu.Unlock()
	close(in.ended)
}
