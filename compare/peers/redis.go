package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/golockers/locker"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

func clients(ctx context.Context, u *locker.URL) ([]*redis.Client, error) {
	if err := u.Check(); err != nil {
		return nil, err
	}
	var all []*redis.Client
	for _, host := range u.Hosts {
		c := redis.NewClient(&redis.Options{Addr: host, ContextTimeoutEnabled: true})
		all = append(all, c)
		if err := c.Ping(ctx).Err(); err != nil {
			return nil, fmt.Errorf("redis %s: %w: %w", host, err, locker.ErrUnavailable)
		}
	}
	return all, nil
}

// simple is a backend made of three functions: those of a library without a loss signal, whose user renews.
type simple struct {
	g       locker.Guarantees
	acquire func(ctx context.Context, req locker.Request) (locker.Grant, error)
	close   func() error
}

func (s *simple) Guarantees() locker.Guarantees { return s.g }
func (s *simple) Close() error                  { return s.close() }
func (s *simple) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	return s.acquire(ctx, req)
}

type hold struct {
	renew   func(ctx context.Context) (locker.Validity, error)
	release func(ctx context.Context) error
}

func (h *hold) Renew(ctx context.Context) (locker.Validity, error) { return h.renew(ctx) }
func (h *hold) Release(ctx context.Context) error                  { return h.release(ctx) }

// Undo is one more release: the libraries have no other.
func (h *hold) Undo(ctx context.Context) error {
	if err := h.release(ctx); !errors.Is(err, locker.ErrLost) {
		return err
	}
	return nil
}

// openRedislock: its lock has no deadline that its holder could ask for without asking the server, so holders
// count from before they asked, as a careful user does.
func openRedislock(ctx context.Context, u *locker.URL, _ locker.Options) (locker.Backend, error) {
	c, err := clients(ctx, u)
	if err != nil {
		return nil, err
	}
	locks := redislock.New(c[0])
	g := undeclared("redislock",
		"our engine's timer, wrapped around it: the library neither renews nor ends a lease, "+
			"so the timer calls Refresh, and ends the lease a TTL after the last request that was answered")
	return &simple{g: g, close: c[0].Close,
		acquire: func(ctx context.Context, req locker.Request) (locker.Grant, error) {
			since := time.Now()
			l, err := locks.Obtain(ctx, req.Name, req.TTL, nil)
			if errors.Is(err, redislock.ErrNotObtained) {
				return refused()
			}
			if err != nil {
				return locker.Grant{}, fmt.Errorf("%w: %w", err, locker.ErrUnavailable)
			}
			valid := func(since time.Time) locker.Validity {
				return locker.Validity{Since: since, TTL: req.TTL, Drift: 1}
			}
			return locker.Grant{Validity: valid(since), Hold: &hold{
				renew: func(ctx context.Context) (locker.Validity, error) {
					since := time.Now()
					err := l.Refresh(ctx, req.TTL, nil)
					if errors.Is(err, redislock.ErrNotObtained) {
						err = locker.ErrLost
					}
					return valid(since), err
				},
				release: func(ctx context.Context) error {
					err := l.Release(ctx)
					if errors.Is(err, redislock.ErrLockNotHeld) {
						return locker.ErrLost
					}
					return err
				},
			}}, nil
		}}, nil
}

// openRedsync: its mutex says until when it is held.
func openRedsync(ctx context.Context, u *locker.URL, _ locker.Options) (locker.Backend, error) {
	all, err := clients(ctx, u)
	if err != nil {
		return nil, err
	}
	var pools []redsyncredis.Pool
	for _, c := range all {
		pools = append(pools, goredis.NewPool(c))
	}
	rs := redsync.New(pools...)
	closeAll := func() (err error) {
		for _, c := range all {
			err = errors.Join(err, c.Close())
		}
		return err
	}
	g := undeclared("redsync", "our engine's timer, wrapped around it: the library says until when it holds, "+
		"so the timer calls Extend, and ends the lease at Until")
	return &simple{g: g, close: closeAll,
		acquire: func(ctx context.Context, req locker.Request) (locker.Grant, error) {
			m := rs.NewMutex(req.Name, redsync.WithExpiry(req.TTL), redsync.WithTries(1))
			valid := func() locker.Validity {
				return locker.Validity{Since: m.Until().Add(-req.TTL), TTL: req.TTL, Drift: 1}
			}
			var taken *redsync.ErrTaken
			switch err := m.TryLockContext(ctx); {
			case errors.As(err, &taken):
				return refused()
			case err != nil:
				return locker.Grant{}, fmt.Errorf("%w: %w", err, locker.ErrUnavailable)
			}
			return locker.Grant{Validity: valid(), Hold: &hold{
				renew: func(ctx context.Context) (locker.Validity, error) {
					ok, err := m.ExtendContext(ctx)
					if err == nil && !ok || errors.Is(err, redsync.ErrExtendFailed) {
						return locker.Validity{}, locker.ErrLost
					}
					return valid(), err
				},
				release: func(ctx context.Context) error {
					ok, err := m.UnlockContext(ctx)
					if err == nil && !ok || errors.Is(err, redsync.ErrLockAlreadyExpired) {
						return locker.ErrLost
					}
					return err
				},
			}}, nil
		}}, nil
}

// openRueidislock: it renews by itself, and tells of a loss by a context.
func openRueidislock(_ context.Context, u *locker.URL, opts locker.Options) (locker.Backend, error) {
	if err := u.Check(); err != nil {
		return nil, err
	}
	ttl := opts.TTL
	if ttl == 0 {
		ttl = time.Second
	}
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: u.Hosts}, KeyValidity: ttl, KeyMajority: 1,
		NoLoopTracking: true,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, locker.ErrUnavailable)
	}
	g := undeclared("rueidislock", "the library alone: it renews every half of a TTL, and ends its own context")
	return &simple{g: g, close: func() error { locks.Close(); return nil },
		acquire: func(ctx context.Context, req locker.Request) (locker.Grant, error) {
			// The context is the lock's life, too: that of the request must not end it.
			held, release, err := locks.TryWithContext(context.WithoutCancel(ctx), req.Name)
			if errors.Is(err, rueidislock.ErrNotLocked) {
				return refused()
			}
			if err != nil {
				return locker.Grant{}, fmt.Errorf("%w: %w", err, locker.ErrUnavailable)
			}
			context.AfterFunc(held, req.Lost)
			return locker.Grant{Validity: locker.Validity{Since: time.Now()}, Hold: &hold{
				renew: func(context.Context) (locker.Validity, error) {
					if held.Err() != nil {
						return locker.Validity{}, locker.ErrLost
					}
					return locker.Validity{Since: time.Now()}, nil
				},
				release: func(context.Context) error {
					lost := held.Err() != nil
					release()
					if lost {
						return locker.ErrLost
					}
					return nil
				},
			}}, nil
		}}, nil
}
