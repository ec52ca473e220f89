package main

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/oneline"
)

// openEtcdMutex uses one Session for all of a client's Mutexes, as intended; the Session reports a
// loss. All Mutexes of a Session and a name have the same key, so one that is locked while another is
// being unlocked takes that key for its own and loses it a moment later: callers take turns.
func openEtcdMutex(_ context.Context, u *driver.URL, opts driver.Settings) (driver.Backend, error) {
	if err := u.Check(); err != nil {
		return nil, err
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: u.Hosts, DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, unavailable(err)
	}
	var mu sync.Mutex
	turns := map[string]chan struct{}{} // by name
	var current *concurrency.Session
	// session is one for all Mutexes: a new one if the old one has ended.
	session := func() (*concurrency.Session, error) {
		mu.Lock()
		defer mu.Unlock()
		if current != nil && over(current.Done()) == nil {
			return current, nil
		}
		s, err := concurrency.NewSession(c, concurrency.WithTTL(int(max(opts.TTL, time.Second)/time.Second)))
		if err == nil {
			current = s
		}
		return s, err
	}
	if _, err := session(); err != nil {
		return nil, oneline.Join(unavailable(err), c.Close())
	}
	g := undeclared("etcd-mutex", "the library alone: its Session renews, and its Done tells of a loss")
	g.MinTTL = time.Second
	turn := func(ctx context.Context, name string) (end func(), err error) {
		mu.Lock()
		if turns[name] == nil {
			turns[name] = make(chan struct{}, 1)
		}
		one := turns[name]
		mu.Unlock()
		select {
		case one <- struct{}{}:
			return sync.OnceFunc(func() { <-one }), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &peer{g, func(ctx context.Context, req driver.Request) (*hold, error) {
		end, err := turn(ctx, req.Name)
		if err != nil {
			return nil, err
		}
		s, err := session()
		if err != nil {
			end()
			return nil, err
		}
		m := concurrency.NewMutex(s, req.Name)
		lock := m.TryLock
		if req.Wait {
			lock = m.Lock
		}
		if err := lock(ctx); err != nil {
			end()
			return nil, as(err, concurrency.ErrLocked, locker.ErrHeld)
		}
		held, released := context.WithCancel(context.Background())
		go func() {
			defer end() // its key ends with the session
			select {
			case <-s.Done():
				req.Lost()
			case <-held.Done():
			}
		}()
		return &hold{
			valid: untold,
			renew: func(context.Context) error { return over(s.Done()) },
			release: func(ctx context.Context) error {
				err := m.Unlock(ctx)
				if err == nil {
					released()
				}
				return err
			},
		}, nil
	}, func() error { return oneline.Join(current.Close(), c.Close()) }, true}, nil
}

// openZKLock uses one connection for all of a client's locks; its session's state reports a loss.
func openZKLock(ctx context.Context, u *driver.URL, opts driver.Settings) (driver.Backend, error) {
	if err := u.Check(); err != nil {
		return nil, err
	}
	conn, events, err := zk.Connect(u.Hosts, max(opts.TTL, 400*time.Millisecond), zk.WithLogInfo(false),
		zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	for open := false; !open; {
		select {
		case e := <-events:
			open = e.State == zk.StateHasSession
		case <-ctx.Done():
			conn.Close()
			return nil, unavailable(ctx.Err())
		}
	}
	g := undeclared("zk.lock", "the library alone: the connection renews, and the session's state, which "+
		"its user watches, tells of a loss")
	g.MinTTL = 400 * time.Millisecond
	return &peer{g, func(_ context.Context, req driver.Request) (*hold, error) {
		l := zk.NewLock(conn, path.Join("/peers", strings.ReplaceAll(req.Name, "/", "-")), zk.WorldACL(zk.PermAll))
		if !req.Wait {
			return nil, errors.ErrUnsupported // zk.Lock cannot try
		}
		if err := l.Lock(); err != nil { // it takes no context: the engine continues without it
			return nil, err
		}
		session := conn.SessionID()
		return &hold{
			valid: untold,
			renew: func(context.Context) error {
				if conn.SessionID() != session { // 0 once it has learned that the old one expired
					return locker.ErrLost
				}
				return nil
			},
			release: func(context.Context) error { return l.Unlock() },
		}, nil
	}, func() error { conn.Close(); return nil }, true}, nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}
