package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/golockers/locker"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// openEtcdMutex: one Session for all of a client's Mutexes, which is how it is meant; the Session tells of a
// loss.
func openEtcdMutex(_ context.Context, u *locker.URL, opts locker.Options) (locker.Backend, error) {
	if err := u.Check(); err != nil {
		return nil, err
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: u.Hosts, DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, locker.ErrUnavailable)
	}
	seconds := int(max(opts.TTL, time.Second) / time.Second)
	var mu sync.Mutex
	var current *concurrency.Session
	// session is the one for all Mutexes; a new one where the old one is over.
	session := func() (*concurrency.Session, error) {
		mu.Lock()
		defer mu.Unlock()
		if current != nil {
			select {
			case <-current.Done():
			default:
				return current, nil
			}
		}
		s, err := concurrency.NewSession(c, concurrency.WithTTL(seconds))
		if err == nil {
			current = s
		}
		return s, err
	}
	if _, err := session(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", err, locker.ErrUnavailable), c.Close())
	}
	g := undeclared("etcd-mutex", "the library alone: its Session renews, and its Done tells of a loss")
	g.MinTTL, g.Queue = time.Second, true
	return &simple{g: g, close: func() error { return errors.Join(current.Close(), c.Close()) },
		acquire: func(ctx context.Context, req locker.Request) (locker.Grant, error) {
			s, err := alone(ctx, session, func(*concurrency.Session) {})
			if err != nil {
				return locker.Grant{}, fmt.Errorf("%w: %w", err, locker.ErrUnavailable)
			}
			m := concurrency.NewMutex(s, req.Name)
			lock := m.TryLock
			if req.Wait {
				lock = m.Lock
			}
			switch err := lock(ctx); {
			case errors.Is(err, concurrency.ErrLocked):
				return refused()
			case err != nil:
				return locker.Grant{}, fmt.Errorf("%w: %w", err, locker.ErrUnavailable)
			}
			held, over := context.WithCancel(context.Background())
			go func() {
				select {
				case <-s.Done():
					req.Lost()
				case <-held.Done():
				}
			}()
			return locker.Grant{Validity: locker.Validity{Since: time.Now()}, Hold: &hold{
				renew: func(context.Context) (locker.Validity, error) {
					select {
					case <-s.Done():
						return locker.Validity{}, locker.ErrLost
					default:
						return locker.Validity{Since: time.Now()}, nil
					}
				},
				release: func(ctx context.Context) error {
					err := m.Unlock(ctx)
					if err == nil {
						over()
					}
					return err
				},
			}}, nil
		}}, nil
}

// openZKLock: one connection for all of a client's locks; its session's state tells of a loss.
func openZKLock(ctx context.Context, u *locker.URL, opts locker.Options) (locker.Backend, error) {
	if err := u.Check(); err != nil {
		return nil, err
	}
	lost := make(chan struct{}, 1)
	conn, events, err := zk.Connect(u.Hosts, max(opts.TTL, 400*time.Millisecond), zk.WithLogInfo(false),
		zk.WithLogger(silent{}),
		zk.WithEventCallback(func(e zk.Event) {
			if e.State == zk.StateExpired {
				select {
				case lost <- struct{}{}:
				default:
				}
			}
		}))
	if err != nil {
		return nil, err
	}
	for open := false; !open; {
		select {
		case e := <-events:
			open = e.State == zk.StateHasSession
		case <-ctx.Done():
			conn.Close()
			return nil, fmt.Errorf("%w: %w", ctx.Err(), locker.ErrUnavailable)
		}
	}
	g := undeclared("zk.lock",
		"the library alone: the connection renews, and the session's state, which its user "+
			"watches, tells of a loss")
	g.MinTTL, g.Queue = 400*time.Millisecond, true
	return &simple{g: g, close: func() error { conn.Close(); return nil },
		acquire: func(ctx context.Context, req locker.Request) (locker.Grant, error) {
			l := zk.NewLock(conn, path.Join("/peers", strings.ReplaceAll(req.Name, "/", "-")), zk.WorldACL(zk.PermAll))
			if !req.Wait {
				return locker.Grant{}, errors.ErrUnsupported // zk.Lock cannot try
			}
			_, err := alone(ctx, func() (struct{}, error) { return struct{}{}, l.Lock() },
				func(struct{}) { _ = l.Unlock() })
			if err != nil {
				return locker.Grant{}, fmt.Errorf("%w: %w", err, locker.ErrUnavailable)
			}
			session := conn.SessionID()
			return locker.Grant{Validity: locker.Validity{Since: time.Now()}, Hold: &hold{
				renew: func(context.Context) (locker.Validity, error) {
					select {
					case <-lost:
						return locker.Validity{}, locker.ErrLost
					default:
					}
					if conn.SessionID() != session && conn.State() == zk.StateHasSession {
						return locker.Validity{}, locker.ErrLost
					}
					return locker.Validity{Since: time.Now()}, nil
				},
				release: func(ctx context.Context) error {
					_, err := alone(ctx, func() (struct{}, error) { return struct{}{}, l.Unlock() }, func(struct{}) {})
					return err
				},
			}}, nil
		}}, nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}
