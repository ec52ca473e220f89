// Command peers is `locker compare` with locks of other libraries beside ours: each is wrapped as a backend
// that does and believes what the library itself does and says, no more. Nothing is declared for them, so
// what breaks is information.
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

// peer is a lock of another library as a backend, of which nothing is declared.
type peer struct {
	g     locker.Guarantees
	take  func(ctx context.Context, req driver.Request) (*hold, error)
	close func() error
	queue bool // Lock of the library waits for the lock
}

// undeclared is what is said of a library: its name, and what keeps time for its holders.
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

// hold is a lock that is held: how long after it was asked for at a time, and what its library has for
// the rest.
type hold struct {
	valid   func(asked time.Time) driver.Validity
	renew   func(ctx context.Context) error
	release func(ctx context.Context) error
}

func (h *hold) Release(ctx context.Context) error { return h.release(ctx) }

func (h *hold) Renew(ctx context.Context) (driver.Validity, error) {
	asked := time.Now()
	err := h.renew(ctx)
	return h.valid(asked), err
}

// Undo is one more release: the libraries have no other.
func (h *hold) Undo(ctx context.Context) error { return as(h.release(ctx), locker.ErrLost, nil) }

// as is err, or what we call it if it is what a library calls theirs.
func as(err, theirs, ours error) error {
	if errors.Is(err, theirs) {
		return ours
	}
	return err
}

// untold is the validity of a hold without a deadline of its own: until its holder is told.
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
