package zkguard_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/zkguard"
	"github.com/golockers/locker/internal/guardtest"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/znode"
)

func TestSuite(t *testing.T) {
	s := newScene(t)
	guardtest.Run(t, func(t *testing.T) guardtest.Store { return s.store(t, connect(t, s.server.Addr())) })
}

// store is a guard on conn with marks of this test's own, and what is there by the scene's own connection.
func (s scene) store(t *testing.T, conn *zk.Conn) guardtest.Store {
	of := znode.Encode(t.Name())
	guard := newGuard(t, conn, &zkguard.Options{Prefix: "/fencing-" + of})
	path := func(resource string) string { return "/value-" + of + "-" + znode.Encode(resource) }
	return guardtest.Store{
		Write: func(ctx context.Context, resource string, token fencing.Token, value string) error {
			_, err := s.admin.Create(path(resource), nil, 0, zk.WorldACL(zk.PermAll))
			if err != nil && !errors.Is(err, zk.ErrNodeExists) {
				return err
			}
			_, err = guard.Multi(ctx, resource, token, set(path(resource), value))
			return err
		},
		Raise: guard.Raise,
		Mark:  guard.Mark,
		Read: func(_ context.Context, resource string) (string, error) {
			data, _, err := s.admin.Get(path(resource))
			if errors.Is(err, zk.ErrNoNode) {
				return "", nil
			}
			return string(data), err
		},
		AnyName: true,
	}
}

func (s scene) proxied(t *testing.T) guardtest.Proxied {
	p := lab.StartProxy(t, s.server.Addr())
	return guardtest.Proxied{Store: s.store(t, connect(t, p.Addr())), Proxy: p, Later: s.store(t, s.admin).Write}
}

func TestLostReply(t *testing.T) {
	guardtest.LostReply(t, func(t *testing.T) guardtest.Proxied { return newScene(t).proxied(t) })
}

func TestLateRequestIsGuarded(t *testing.T) { guardtest.LateRequest(t, newScene(t).proxied(t)) }

func TestUnreachableIsToldWithinTheDeadline(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	guardtest.Unreachable(t, scene{}.store(t, connect(t, l.Addr().String())), l.Addr().String())
}
