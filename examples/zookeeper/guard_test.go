package main

import (
	"context"
	"errors"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/guardtest"
	"github.com/golockers/locker/internal/lab"
)

func TestMain(m *testing.M) {
	lab.RunRole(nil)
	os.Exit(m.Run())
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func connect(t *testing.T, servers ...string) *zk.Conn {
	conn, _, err := zk.Connect(servers, 4*time.Second, zk.WithLogger(silent{}))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn
}

// create makes a node unless it is there.
func create(conn *zk.Conn, path string) error {
	_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

// store is a guard on conn, and what is there by another connection.
func store(t *testing.T, conn, admin *zk.Conn) guardtest.Store {
	require.NoError(t, create(admin, "/fencing"))
	g := Guard{conn}
	get := func(path string) (string, error) {
		if _, err := admin.Sync("/"); err != nil { // its server may be behind
			return "", err
		}
		data, _, err := admin.Get(path)
		if errors.Is(err, zk.ErrNoNode) {
			return "", nil
		}
		return string(data), err
	}
	var made sync.Map
	value := func(r string) string { return "/value-" + url.PathEscape(r) }
	return guardtest.Store{
		Write: func(ctx context.Context, r string, token fencing.Token, data string) error {
			if _, there := made.LoadOrStore(r, true); !there && fencing.CheckName(r) == nil {
				if err := create(admin, value(r)); err != nil {
					return err
				}
			}
			return g.Multi(ctx, r, token, &zk.SetDataRequest{Path: value(r), Data: []byte(data), Version: -1})
		},
		Raise: func(ctx context.Context, r string, token fencing.Token) error { return g.Multi(ctx, r, token) },
		Read:  func(_ context.Context, r string) (string, error) { return get(value(r)) },
		Mark: func(_ context.Context, r string) (fencing.Token, error) {
			text, err := get("/fencing/mark-" + url.PathEscape(r))
			if err = errors.Join(err, fencing.CheckName(r)); err != nil || text == "" {
				return 0, err
			}
			return fencing.Parse(text)
		},
		AnyName: true,
	}
}

func TestSuite(t *testing.T) {
	t.Parallel()
	s := lab.StartZooKeeper(t)
	admin := connect(t, s.Addr())
	guardtest.Run(t, func(t *testing.T) guardtest.Store { return store(t, connect(t, s.Addr()), admin) })
	guardtest.Faults(t, func(t *testing.T) guardtest.Proxied {
		s := lab.StartZooKeeper(t)
		admin, p := connect(t, s.Addr()), lab.StartProxy(t, s.Addr())
		return guardtest.Proxied{Store: store(t, connect(t, p.Addr()), admin), Proxy: p,
			Later: store(t, admin, admin).Write}
	})
	require.NoError(t, create(admin, "/fencing"))
	_, err := admin.Create("/fencing/mark-closed", nil, 0, zk.DigestACL(zk.PermAll, "another", "secret"))
	require.NoError(t, err)
	err = Guard{admin}.Multi(t.Context(), "closed", 1)
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.NotErrorIs(t, err, locker.ErrUnavailable, "no right to the mark is no outage")
}

func TestNoLowerTokenWritesAfterAHigherOneWhileALeaderIsKilled(t *testing.T) {
	t.Parallel()
	e := lab.StartZooKeeperEnsemble(t, 3)
	leader := e.Leader(t)
	admin := connect(t, e.Others(leader)[0].Addr())
	var writers []guardtest.Store
	for range 6 {
		w := store(t, connect(t, e.Addrs()...), admin)
		require.NoError(t, w.Write(t.Context(), "race", 1, "")) // it is connected, and its first write makes the node
		writers = append(writers, w)
	}
	guardtest.During(t, store(t, admin, admin), writers, func() {
		leader.Kill()
		e.Leader(t, e.Others(leader)...)
	})
}

// Before a late holder's server has heard of the next one, it shows the old mark, and the transaction is
// refused by its version.
func TestAServerThatIsBehindLetsNothingThrough(t *testing.T) {
	t.Parallel()
	e := lab.StartZooKeeperEnsemble(t, 3, lab.WithConfig("tickTime", "500")) // it is followed for longer than this takes
	leader := e.Leader(t)
	behind := e.Others(leader)[0]
	other := connect(t, leader.Addr())
	next, late := store(t, other, other), store(t, connect(t, behind.Addr()), other)
	require.NoError(t, late.Write(t.Context(), "r", 1, "first"))
	e.Isolate(behind, lab.Hold)
	require.NoError(t, next.Write(t.Context(), "r", 9, "next"))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, late.Write(ctx, "r", 5, "late"), fencing.ErrUnknown)
	e.Isolate(behind, lab.Pass)
	require.Eventually(t, func() bool {
		return errors.Is(late.Write(t.Context(), "r", 5, "late"), fencing.ErrStale)
	}, time.Minute, 10*time.Millisecond)
	value, err := next.Read(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, "next", value)
}
