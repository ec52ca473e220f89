package etcdguard_test

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/guardtest"
	"github.com/golockers/locker/internal/lab"
)

func TestSuite(t *testing.T) {
	s := newScene(t, 1)
	guardtest.Run(t, func(t *testing.T) guardtest.Store { return s.store(t, dial(t, s.Addrs())) })
}

// store is a guard on client, and what is there by the scene's own client.
func (s scene) store(t *testing.T, client *clientv3.Client) guardtest.Store {
	g := newGuard(t, client, nil)
	return guardtest.Store{
		Write: func(ctx context.Context, r string, token fencing.Token, value string) error {
			_, err := g.Commit(ctx, r, token, clientv3.OpPut("value/"+r, value))
			return err
		},
		Raise:   g.Raise,
		Read:    func(_ context.Context, r string) (string, error) { return s.value(t, "value/"+r), nil },
		Mark:    g.Mark,
		Forget:  g.Forget,
		AnyName: true,
		State:   func() any { return s.revision(t) },
	}
}

func (s scene) proxied(t *testing.T) guardtest.Proxied {
	p := lab.StartProxy(t, s.Nodes[0].Addr())
	return guardtest.Proxied{Store: s.store(t, dial(t, []string{p.Addr()})), Proxy: p,
		Later: s.store(t, s.admin).Write}
}

func TestLostReply(t *testing.T) {
	guardtest.LostReply(t, func(t *testing.T) guardtest.Proxied { return newScene(t, 1).proxied(t) })
}

func TestLateRequestIsGuarded(t *testing.T) { guardtest.LateRequest(t, newScene(t, 1).proxied(t)) }

func TestUnreachableIsToldWithinTheDeadline(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	guardtest.Unreachable(t, scene{}.store(t, dial(t, []string{l.Addr().String()})), l.Addr().String())
}

func TestProveLowerTokensNeverWriteAfterHigherOnesWhileALeaderIsKilled(t *testing.T) {
	lab.NeedProve(t)
	s := newScene(t, 3)
	var writers []func(context.Context, fencing.Token) error
	for range 6 {
		write := s.store(t, dial(t, s.Addrs())).Write
		writers = append(writers, func(ctx context.Context, token fencing.Token) error {
			return write(ctx, "r", token, token.String())
		})
	}
	guardtest.DuringFault(t, writers, func() {
		leader := s.Leader(t)
		leader.Kill()
		s.Leader(t, leader)
	}, func() []fencing.Token { return s.history(t) })
}

// history is every value that was ever written to the resource r, in order.
func (s scene) history(t *testing.T) (tokens []fencing.Token) {
	t.Helper()
	ctx := within(t, soon)
	last := s.revision(t)
	for resp := range s.admin.Watch(ctx, "value/r", clientv3.WithRev(1), clientv3.WithProgressNotify()) {
		require.NoError(t, resp.Err())
		for _, e := range resp.Events {
			token, err := fencing.Parse(string(e.Kv.Value))
			require.NoError(t, err)
			tokens = append(tokens, token)
			// The mark is never behind what was written with it.
			at, err := s.admin.Get(ctx, "fencing/1/mark/r", clientv3.WithRev(e.Kv.ModRevision))
			require.NoError(t, err)
			require.Len(t, at.Kvs, 1)
			require.Equal(t, e.Kv.ModRevision, at.Kvs[0].ModRevision, "the mark is written in the same transaction")
		}
		if resp.Header.Revision >= last {
			break
		}
		require.NoError(t, s.admin.RequestProgress(ctx))
	}
	return tokens
}
