package single

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/redisnode"
)

// labelMark stands between the owner and the label in a lock's value. The
// whole value is compared, so the label can say anything.
const labelMark = ":"

// hold is a lock that was granted.
type hold struct {
	b           *Backend
	name, value string
	ttl         time.Duration
}

// Renew implements [locker.Hold].
func (h *hold) Renew(ctx context.Context) (locker.Validity, error) {
	since := time.Now()
	state, err := h.b.node.Renew(ctx, h.name, h.value, h.ttl)
	if err != nil {
		return locker.Validity{}, failure(ctx, err)
	}
	if state != redisnode.Mine {
		return locker.Validity{}, h.lost(state)
	}
	return locker.Validity{Since: since, TTL: h.ttl}, nil
}

// Release implements [locker.Hold]. Where the node had to ask twice, nil means
// that the lock is not the holder's any more: it cannot tell its own first
// request from a loss before.
func (h *hold) Release(ctx context.Context) error {
	state, err := h.b.node.Release(ctx, h.name, h.value)
	if err != nil {
		return failure(ctx, err)
	}
	if state != redisnode.Mine {
		return h.lost(state)
	}
	return nil
}

// lost says what was found in the lock's place.
func (h *hold) lost(state redisnode.State) error {
	what := "its key is gone"
	if state == redisnode.Theirs {
		what = "another has the lock"
	}
	return fmt.Errorf("redis %s: %s: %w", h.b.node.Addr(), what, locker.ErrLost)
}

// doubtful is a hold that may have been granted, or may yet be: the request's
// outcome is not known.
type doubtful hold

// Renew implements [locker.Hold]; the engine does not call it.
func (d *doubtful) Renew(context.Context) (locker.Validity, error) {
	return locker.Validity{}, locker.ErrLost
}

// Release takes the key back, and makes a request that is still under way void
// for as long as the lock would have lasted (R7). With nil, it is settled.
func (d *doubtful) Release(ctx context.Context) error {
	_, err := d.b.node.TakeBack(ctx, d.name, d.value, max(d.ttl, voidTime))
	if err != nil {
		return failure(ctx, err)
	}
	return nil
}

// voidTime is how late a request may arrive and still be refused.
const voidTime = time.Minute

// unknown reports whether the request may have been carried out.
func unknown(err error) bool {
	var e *redisnode.Error
	return !errors.As(err, &e) || e.Unknown
}

// failure says, in the engine's words, why there was no answer: whoever's ctx
// ended knows that; what trying again cannot mend is not ErrUnavailable.
func failure(ctx context.Context, err error) error {
	var e *redisnode.Error
	switch {
	case errors.Is(err, redisnode.ErrClosed):
		return fmt.Errorf("%w: %w", locker.ErrClosed, err)
	case ctx.Err() != nil, errors.As(err, &e) && e.Refused:
		return err
	}
	return fmt.Errorf("%w: %w", locker.ErrUnavailable, err)
}
