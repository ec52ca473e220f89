package single

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/probe"
	"github.com/golockers/locker/internal/redisconn"
)

// labelMark stands between the owner and the label in a lock's value. The
// whole value is compared, so the label can say anything.
const labelMark = ":"

// hold is a lock that was granted, or may have been.
type hold struct {
	b        *Backend
	keys     redisconn.Keys
	ttl      time.Duration
	lasts    time.Duration // what a request sets for the lock to last: the longer of TTL and MinHold
	inFlight bool          // a copy of the acquire may still arrive, and has to find itself void
	shared   bool
	undo     driver.Undo
}

func (b *Backend) newHold(req driver.Request) *hold {
	return &hold{
		b: b, keys: redisconn.KeysOf(req.Name, req.Owner, labelMark, req.Label),
		ttl: req.TTL, lasts: max(req.TTL, req.MinHold), shared: req.Shared,
	}
}

// Renew implements [driver.Hold].
func (h *hold) Renew(ctx context.Context) (driver.Validity, error) {
	since := time.Now()
	state, err := h.b.server.renew(ctx, &h.keys, h.shared, h.ttl, &h.undo)
	if err == nil && state != redisconn.Mine {
		err = h.lost(state)
	}
	if err != nil {
		return driver.Validity{}, failure(err)
	}
	return driver.Validity{Since: since, TTL: h.ttl}, nil
}

// Release implements [driver.Hold]. Where it had to be sent twice, nil means that the lock is not the holder's
// any more: the second copy cannot tell the first one's work from a loss before.
func (h *hold) Release(ctx context.Context) error {
	void := time.Duration(0)
	if h.inFlight {
		void = h.void()
	}
	state, err := h.b.server.release(ctx, &h.keys, h.shared, void)
	if err == nil && state != redisconn.Mine {
		err = h.lost(state)
	}
	return failure(err)
}

// Undo implements [driver.Hold]. Copies of the acquire that may still be under way find themselves void.
func (h *hold) Undo(ctx context.Context) error {
	return h.undo.Undo(ctx, func(ctx context.Context) error {
		_, err := h.b.server.release(ctx, &h.keys, h.shared, h.void())
		if err == nil && !h.shared {
			err = h.removeNote(ctx)
		}
		return failure(err)
	})
}

// void is for how long a request of the attempt that arrives late is refused: as long as the lock would have
// lasted (R7), and no less than a minute.
func (h *hold) void() time.Duration { return max(h.lasts, voidTime) }

// As implements [driver.Aser].
func (h *hold) As(target any) bool {
	remains, ok := target.(*probe.Remains)
	if ok {
		*remains = func(ctx context.Context) error {
			return h.b.server.Client().Del(ctx, h.keys.Wait().(string)).Err()
		}
	}
	return ok
}

// voidTime is how late a request may arrive and still be refused, at least.
const voidTime = time.Minute

// RaiseToken implements [driver.TokenRaiser].
func (h *hold) RaiseToken(ctx context.Context, token uint64) error {
	if token > maxToken {
		return invalid("the token %d is above %d, up to where Redis counts exactly", token, uint64(maxToken))
	}
	state, err := h.b.server.raise(ctx, &h.keys, token)
	if err == nil && state != redisconn.Mine {
		err = h.lost(state)
	}
	return failure(err)
}

// maxToken is up to where a Lua number counts exactly, less one for the next.
const maxToken = 1<<53 - 2

// passing is a hold that can be passed on. One is not on a Cluster, where messages go another way; nor where
// a copy of the acquire may still be under way, which only Release makes void.
type passing struct{ *hold }

func (b *Backend) passing(h *hold) driver.Hold {
	if h.inFlight || h.shared || b.server.IsCluster() {
		return h
	}
	return passing{h}
}

// Pass implements [driver.Passer]. A copy of the request that arrives late does
// nothing: it passes on only what the old owner has, which by then has nothing and
// never will. Where that is not certain yet, next is made void first (R7).
func (h passing) Pass(ctx context.Context, req driver.Request, yield bool) (driver.Grant, error) {
	next := h.b.newHold(req)
	since := time.Now()
	answer, err := h.b.server.pass(ctx, &h.keys, &next.keys, next.lasts, yield, &next.undo)
	switch {
	case err != nil && unknown(err):
		return driver.Grant{Hold: next}, failure(err)
	case err == nil && answer.granted:
		return driver.Grant{Hold: passing{next}, Validity: driver.Validity{Since: since, TTL: req.TTL},
			Token: answer.token}, nil
	case err == nil && (answer.turn || answer.lost && answer.repeated):
		// If it is lost after a repetition, a copy before may have released it: see Release.
		return driver.Grant{}, nil
	case err == nil && answer.lost:
		return driver.Grant{}, failure(h.lost(answer.state))
	}
	return driver.Grant{}, h.Release(ctx) // it cannot be granted to next, whatever the reason
}

// lost says what was found in the lock's place.
func (h *hold) lost(state redisconn.State) error {
	what := "its key is gone"
	if state == redisconn.Theirs {
		what = "another has the lock"
	}
	return fmt.Errorf("redis %s: %s: %w", h.b.server.Addr(), what, driver.ErrLost)
}

// unknown reports whether the request may have been carried out.
func unknown(err error) bool {
	var e *redisconn.Error
	return !errors.As(err, &e) || e.Unknown
}

// failure says, in the engine's words, why there was no answer. It goes by the
// cause and not by whether ctx has ended since: a context's error is the
// context's, and what trying again cannot mend is not ErrUnavailable.
func failure(err error) error {
	if err == nil {
		return nil
	}
	var e *redisconn.Error
	switch {
	case errors.Is(err, driver.ErrLost), errors.Is(err, context.Canceled),
		errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, redisconn.ErrClosed):
		return fmt.Errorf("%w: %w", driver.ErrClosed, err)
	case errors.As(err, &e) && e.Refused:
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}
