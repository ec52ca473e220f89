package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
)

// flaw is what is wrong with a lock. Each is a mistake that a lock in use has, or had.
type flaw string

const (
	none            flaw = "good"
	noOwnerCheck    flaw = "no-owner-check" // Release deletes whatever is there
	ownSignal       flaw = "own-signal"     // its own loss signal, when renewals have failed for long
	boasts          flaw = "boasts"         // its leases are said to be longer than the service keeps them
	renewsOthers    flaw = "renews-others"  // a renewal sets the key, whoever has it
	sharedSession   flaw = "shared-session" // the owner is the host, not the attempt
	forgetsTokens   flaw = "forgets-tokens" // the counter lives as long as the lock
	neverExpires    flaw = "never-expires"  // the key has no TTL
	leavesGhosts    flaw = "leaves-ghosts"  // what an unknown outcome left is kept alive by its client
	claimsRestart   flaw = "claims-restart" // it declares that locks outlive the loss of the server's data
	losesLeases     flaw = "loses-leases"   // a lease is said to be lost now and then
	neverRenews     flaw = "never-renews"   // its renewals fail before they are sent
	ignoresCommands flaw = "ignores-errors" // no answer is taken for a yes
)

var flaws = []flaw{
	none, noOwnerCheck, ownSignal, boasts, renewsOthers, sharedSession, forgetsTokens, neverExpires,
	leavesGhosts, claimsRestart, losesLeases, neverRenews, ignoresCommands,
}

// badOpeners are a lock on one Redis in some tens of lines, with each flaw under a scheme of its own.
func badOpeners() driver.Openers {
	o := driver.Openers{}
	for _, f := range flaws {
		o[string(f)] = func(ctx context.Context, u *driver.URL, _ driver.Settings) (driver.Backend, error) {
			if err := u.Check(); err != nil {
				return nil, err
			}
			b := &badLock{flaw: f, rdb: redis.NewClient(&redis.Options{
				Addr: u.Hosts[0], ContextTimeoutEnabled: true, DialTimeout: 300 * time.Millisecond,
				ReadTimeout: 300 * time.Millisecond, MaxRetries: -1,
			})}
			err := b.rdb.Ping(ctx).Err()
			for err != nil && clock.Sleep(ctx, 50*time.Millisecond) == nil { // on a busy machine
				err = b.rdb.Ping(ctx).Err()
			}
			return b, err
		}
	}
	return o
}

type badLock struct {
	flaw flaw
	rdb  *redis.Client
}

func (b *badLock) Guarantees() locker.Guarantees {
	g := locker.Guarantees{
		Backend: string(b.flaw), Scope: locker.ScopeNetwork, Exclusion: locker.ExclusionServer,
		Fencing:    locker.FencingWhileKept,
		DeadHolder: locker.RecoveryAfterTTL, RestsOn: "a test",
	}
	if b.flaw == claimsRestart {
		g.SurvivesRestart = true
	}
	return g
}

func (b *badLock) Close() error { return b.rdb.Close() }

var (
	badAcquire = redis.NewScript(`
		local has = redis.call('GET', KEYS[1])
		if has and has ~= ARGV[1] then return {0, redis.call('PTTL', KEYS[1])} end
		redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
		return {redis.call('INCR', KEYS[2]), 0}`)
	badRenew = redis.NewScript(
		`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0`)
	badRelease = redis.NewScript(
		`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`)
)

func (b *badLock) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	h := &badHold{lock: b, key: req.Name, owner: req.Owner, ttl: req.TTL, lost: req.Lost}
	if b.flaw == sharedSession {
		h.owner, _ = os.Hostname()
	}
	since := time.Now()
	answer, err := badAcquire.Run(ctx, b.rdb, []string{h.key, h.key + ":token"}, h.owner,
		req.TTL.Milliseconds()).Int64Slice()
	if b.flaw == ignoresCommands && err != nil {
		answer, err = []int64{1, 0}, nil
	}
	if err != nil {
		if b.flaw == leavesGhosts {
			go h.keep()
			return driver.Grant{}, fmt.Errorf("%w: %w", err, locker.ErrUnavailable)
		}
		return driver.Grant{Hold: h}, fmt.Errorf("%w: %w", err, locker.ErrUnavailable)
	}
	if answer[0] == 0 {
		return driver.Grant{Refused: &driver.Refusal{Remaining: time.Duration(answer[1]) * time.Millisecond}}, nil
	}
	token := uint64(answer[0])
	switch b.flaw {
	case neverExpires:
		b.rdb.Persist(ctx, h.key)
	case losesLeases:
		time.AfterFunc(req.TTL/50, req.Lost)
	}
	return driver.Grant{Hold: h, Validity: h.validity(since), Token: token}, nil
}

type badHold struct {
	lock  *badLock
	key   string
	owner string
	ttl   time.Duration
	lost  func()

	mu      sync.Mutex
	renewed time.Time
}

func (h *badHold) validity(since time.Time) driver.Validity {
	switch h.lock.flaw {
	case boasts:
		return driver.Validity{Since: since, TTL: 3 * h.ttl / 2}
	case ownSignal, renewsOthers:
		h.mu.Lock()
		h.renewed = time.Now()
		h.mu.Unlock()
		return driver.Validity{Since: since}
	}
	return driver.Validity{Since: since, TTL: h.ttl}
}

// keep renews what nobody knows of.
func (h *badHold) keep() {
	for range 100 {
		time.Sleep(h.ttl / 5)
		ctx, cancel := context.WithTimeout(context.Background(), h.ttl/5)
		_ = badRenew.Run(ctx, h.lock.rdb, []string{h.key}, h.owner, h.ttl.Milliseconds()).Err()
		cancel()
	}
}

func (h *badHold) Renew(ctx context.Context) (driver.Validity, error) {
	since := time.Now()
	switch h.lock.flaw {
	case neverRenews:
		return driver.Validity{}, locker.ErrUnavailable
	case renewsOthers:
		err := h.lock.rdb.Set(ctx, h.key, h.owner, h.ttl).Err()
		return h.validity(since), err
	}
	n, err := badRenew.Run(ctx, h.lock.rdb, []string{h.key}, h.owner, h.ttl.Milliseconds()).Int()
	switch {
	case err != nil && h.lock.flaw == ignoresCommands:
		return h.validity(since), nil
	case err != nil:
		h.mu.Lock()
		late := h.lock.flaw == ownSignal && time.Since(h.renewed) > 3*h.ttl
		h.mu.Unlock()
		if late {
			h.lost()
		}
		return driver.Validity{}, err
	case n == 0 && h.lock.flaw == neverExpires:
		return h.validity(since), nil
	case n == 0:
		return driver.Validity{}, locker.ErrLost
	}
	if h.lock.flaw == neverExpires {
		h.lock.rdb.Persist(ctx, h.key)
	}
	return h.validity(since), nil
}

func (h *badHold) Undo(ctx context.Context) error {
	if err := h.Release(ctx, 0); !errors.Is(err, locker.ErrLost) {
		return err
	}
	return nil
}

func (h *badHold) Release(ctx context.Context, _ time.Duration) error {
	switch h.lock.flaw {
	case noOwnerCheck:
		return h.lock.rdb.Del(ctx, h.key).Err()
	case forgetsTokens:
		_ = h.lock.rdb.Del(ctx, h.key+":token").Err()
	}
	n, err := badRelease.Run(ctx, h.lock.rdb, []string{h.key}, h.owner).Int()
	switch {
	case err != nil && h.lock.flaw == leavesGhosts && errors.Is(err, context.Canceled):
		return nil
	case err != nil:
		return err
	case n == 0:
		return locker.ErrLost
	}
	return nil
}
