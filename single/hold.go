package single

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
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
	atLeast  time.Time // a renewal does not shorten the lock to before (MinHold)
	late     bool      // a copy of the acquire may still arrive, and has to find itself void
	doubtful bool      // it is not known to have been granted: to find nothing is as good as to remove it
}

// Renew implements [locker.Hold].
func (h *hold) Renew(ctx context.Context) (locker.Validity, error) {
	since := time.Now()
	state, err := h.b.server.renew(ctx, &h.keys, max(h.ttl, h.atLeast.Sub(since)))
	if err == nil && state != redisconn.Mine {
		err = h.lost(state)
	}
	if err != nil {
		return locker.Validity{}, failure(err)
	}
	return locker.Validity{Since: since, TTL: h.ttl}, nil
}

// Release implements [locker.Hold]. Where a copy of the acquire may still be
// under way, it makes that void for as long as the lock would have lasted (R7).
// Where the release itself had to be sent twice, nil means that the lock is not
// the holder's any more: the second copy cannot tell the first one's work from a
// loss before.
func (h *hold) Release(ctx context.Context) error {
	var state redisconn.State
	var err error
	if h.late {
		state, err = h.b.server.takeBack(ctx, &h.keys, max(h.ttl, voidTime))
	} else {
		state, err = h.b.server.release(ctx, &h.keys)
	}
	if err == nil && state != redisconn.Mine && !h.doubtful {
		err = h.lost(state)
	}
	return failure(err)
}

// voidTime is how late a request may arrive and still be refused.
const voidTime = time.Minute

// RaiseToken implements [locker.TokenRaiser].
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

// lost says what was found in the lock's place.
func (h *hold) lost(state redisconn.State) error {
	what := "its key is gone"
	if state == redisconn.Theirs {
		what = "another has the lock"
	}
	return fmt.Errorf("redis %s: %s: %w", h.b.server.Addr(), what, locker.ErrLost)
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
	case errors.Is(err, locker.ErrLost), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, redisconn.ErrClosed):
		return fmt.Errorf("%w: %w", locker.ErrClosed, err)
	case errors.As(err, &e) && e.Refused:
		return err
	}
	return fmt.Errorf("%w: %w", locker.ErrUnavailable, err)
}
