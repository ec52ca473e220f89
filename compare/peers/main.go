// Command peers is `locker compare` with locks of other libraries alongside ours: each is wrapped as a
// backend that does and believes only what the library itself does and says. Nothing is declared for
// them, so a breach is information.
//
//	go run . --for 30m redis redislock=redis rueidislock=redis
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/compare"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/redlock"
	"github.com/golockers/locker/single"
	"github.com/golockers/locker/zookeeper"
)

var openers = driver.Openers{
	"redis": single.Open, "redlock": redlock.Open, "etcd": etcd.Open, "zookeeper": zookeeper.Open,
	"redislock": openRedislock, "rueidislock": openRueidislock, "redsync": openRedsync,
	"etcd-mutex": openEtcdMutex, "zk.lock": openZKLock,
}

func main() { compare.Main(openers) }

// peer is another library's lock as a backend without declarations.
type peer struct {
	g     locker.Guarantees
	take  func(ctx context.Context, req driver.Request) (*hold, error)
	close func() error
	queue bool // Lock of the library waits for the lock
}

// undeclared describes a library: its name, and what keeps time for its holders.
func undeclared(name, timer string) locker.Guarantees {
	return locker.Guarantees{Backend: name, Scope: locker.ScopeNetwork, RestsOn: timer}
}

func (p *peer) Guarantees() locker.Guarantees { return p.g }
func (p *peer) Close() error                  { return p.close() }
func (p *peer) Queue() bool                   { return p.queue }

func (p *peer) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	since := time.Now()
	h, err := p.take(ctx, req)
	switch {
	case errors.Is(err, locker.ErrHeld):
		return driver.Grant{Refused: &driver.Refusal{}}, nil
	case errors.Is(err, errors.ErrUnsupported):
		return driver.Grant{}, err
	case err != nil:
		return driver.Grant{}, unavailable(err)
	}
	return driver.Grant{Hold: h, Validity: h.valid(since)}, nil
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", err, locker.ErrUnavailable) }

// hold is a held lock: how long it lasts after the request, and the library's functions for the rest.
type hold struct {
	valid   func(asked time.Time) driver.Validity
	renew   func(ctx context.Context) error
	release func(ctx context.Context) error
}

func (h *hold) Release(ctx context.Context, _ time.Duration) error { return h.release(ctx) }

func (h *hold) Renew(ctx context.Context) (driver.Validity, error) {
	asked := time.Now()
	err := h.renew(ctx)
	return h.valid(asked), err
}

// Undo is another release: the libraries have nothing else.
func (h *hold) Undo(ctx context.Context) error { return as(h.release(ctx), locker.ErrLost, nil) }

// as returns err, or ours if err is the library's equivalent.
func as(err, theirs, ours error) error {
	if errors.Is(err, theirs) {
		return ours
	}
	return err
}

// untold is the validity of a hold without a deadline of its own: until its holder learns of the loss.
func untold(time.Time) driver.Validity { return driver.Validity{Since: time.Now()} }

// over is ErrLost if done is closed.
func over(done <-chan struct{}) error {
	select {
	case <-done:
		return locker.ErrLost
	default:
		return nil
	}
}
