package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/oneline"
)

// clients are connected to each host, and closed together.
func clients(ctx context.Context, u *driver.URL) (all []*redis.Client, closeAll func() error, err error) {
	if err := u.Check(); err != nil {
		return nil, nil, err
	}
	for _, host := range u.Hosts {
		c := redis.NewClient(&redis.Options{Addr: host, ContextTimeoutEnabled: true})
		all = append(all, c)
		if err := c.Ping(ctx).Err(); err != nil {
			return nil, nil, fmt.Errorf("redis %s: %w", host, unavailable(err))
		}
	}
	return all, func() (err error) {
		for _, c := range all {
			err = oneline.Join(err, c.Close())
		}
		return err
	}, nil
}

// openRedislock: the lock's deadline is known only to the server, so holders count from before the
// request, as a careful user does.
func openRedislock(ctx context.Context, u *driver.URL, _ driver.Settings) (driver.Backend, error) {
	c, closeAll, err := clients(ctx, u)
	if err != nil {
		return nil, err
	}
	locks := redislock.New(c[0])
	g := undeclared("redislock", "our engine's timer, wrapped around it: the library neither renews nor ends a "+
		"lease, so the timer calls Refresh, and ends the lease a TTL after the last request that was answered")
	return &peer{g, func(ctx context.Context, req driver.Request) (*hold, error) {
		l, err := locks.Obtain(ctx, req.Name, req.TTL, nil)
		return &hold{
			valid: func(asked time.Time) driver.Validity {
				return driver.Validity{Since: asked, TTL: req.TTL, Drift: 1}
			},
			renew: func(ctx context.Context) error {
				return as(l.Refresh(ctx, req.TTL, nil), redislock.ErrNotObtained, locker.ErrLost)
			},
			release: func(ctx context.Context) error {
				return as(l.Release(ctx), redislock.ErrLockNotHeld, locker.ErrLost)
			},
		}, as(err, redislock.ErrNotObtained, locker.ErrHeld)
	}, closeAll, false}, nil
}

// openRedsync: the mutex has a deadline.
func openRedsync(ctx context.Context, u *driver.URL, _ driver.Settings) (driver.Backend, error) {
	all, closeAll, err := clients(ctx, u)
	if err != nil {
		return nil, err
	}
	var pools []redsyncredis.Pool
	for _, c := range all {
		pools = append(pools, goredis.NewPool(c))
	}
	rs := redsync.New(pools...)
	kept := func(ok bool, err, gone error) error {
		if err == nil && !ok {
			return locker.ErrLost
		}
		return as(err, gone, locker.ErrLost)
	}
	g := undeclared("redsync", "our engine's timer, wrapped around it: the library says until when it holds, "+
		"so the timer calls Extend, and ends the lease at Until")
	return &peer{g, func(ctx context.Context, req driver.Request) (*hold, error) {
		m := rs.NewMutex(req.Name, redsync.WithExpiry(req.TTL), redsync.WithTries(1))
		err := m.TryLockContext(ctx)
		if _, taken := errors.AsType[*redsync.ErrTaken](err); taken {
			err = locker.ErrHeld
		}
		return &hold{
			valid: func(time.Time) driver.Validity {
				return driver.Validity{Since: m.Until().Add(-req.TTL), TTL: req.TTL, Drift: 1}
			},
			renew: func(ctx context.Context) error {
				ok, err := m.ExtendContext(ctx)
				return kept(ok, err, redsync.ErrExtendFailed)
			},
			release: func(ctx context.Context) error {
				ok, err := m.UnlockContext(ctx)
				return kept(ok, err, redsync.ErrLockAlreadyExpired)
			},
		}, err
	}, closeAll, false}, nil
}

// openRueidislock: it renews by itself, and reports a loss with a context.
func openRueidislock(_ context.Context, u *driver.URL, opts driver.Settings) (driver.Backend, error) {
	if err := u.Check(); err != nil {
		return nil, err
	}
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: u.Hosts}, KeyMajority: 1,
		KeyValidity:    cmp.Or(opts.TTL, time.Second),
		NoLoopTracking: true,
	})
	if err != nil {
		return nil, unavailable(err)
	}
	g := undeclared("rueidislock", "the library alone: it renews every half of a TTL, and ends its own context")
	return &peer{g, func(ctx context.Context, req driver.Request) (*hold, error) {
		// The context also is the lock's life, which the request's context must not end.
		held, release, err := locks.TryWithContext(context.WithoutCancel(ctx), req.Name)
		if err != nil {
			return nil, as(err, rueidislock.ErrNotLocked, locker.ErrHeld)
		}
		context.AfterFunc(held, req.Lost)
		return &hold{
			valid: untold,
			renew: func(context.Context) error { return over(held.Done()) },
			release: func(context.Context) error {
				defer release()
				return over(held.Done())
			},
		}, nil
	}, func() error { locks.Close(); return nil }, false}, nil
}
