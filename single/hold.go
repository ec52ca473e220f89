package single

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/probe"
	"github.com/golockers/locker/internal/redisnode"
)

// askWithin is how soon a writer that waits for sharers asks again: in time for its note, which lasts a second, even if
// one request and its repetition take long.
const askWithin = 300 * time.Millisecond

// hold is a lock that was granted, or may have been.
type hold struct {
	b      *Backend
	keys   redisnode.Keys
	ttl    time.Duration
	lasts  time.Duration // what a request sets for the lock to last: the longer of TTL and MinHold
	shared bool
	copied bool // a copy of the acquire may still arrive, and has to find itself void
	undo   driver.Undo
}

func (b *Backend) newHold(req driver.Request) *hold {
	return &hold{
		b: b, keys: redisnode.KeysOf(req.Name, req.Owner, redisnode.LabelMark, req.Label),
		ttl: req.TTL, lasts: max(req.TTL, req.MinHold), shared: req.Shared,
	}
}

// Acquire implements [driver.Backend].
func (b *Backend) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	h := b.newHold(req)
	k, script, note := &h.keys, b.scripts.acquire, h.keys.Lock
	if req.Shared {
		script = b.scripts.share
	}
	if req.Wait {
		note = k.Wait()
	}
	since := time.Now()
	o := b.node.Do(ctx, script.Attempt("acquire", k.Name, b.tokens(k.Name), k.Void(), k.Lock, note, k.Value(),
		redisnode.Milliseconds(h.lasts)).Storing(&h.undo, h.lasts))
	return b.grant(h, o, since, req.Wait)
}

// grant is what an answer of acquire.lua or share.lua means to the engine. It is read strictly: what the scripts do
// not answer is no grant.
func (b *Backend) grant(h *hold, o redisnode.Outcome, since time.Time, wait bool) (g driver.Grant, _ error) {
	if h.copied = o.Copies > 1; h.copied || o.Err != nil && o.Err.Unknown {
		g.Hold = h // a copy may still arrive, or this one was carried out
	}
	if o.Err != nil {
		return g, failure(o.Err)
	}
	var refused *driver.Refusal
	switch n := o.Answer.N; {
	case o.Answer.Text != "", o.Answer.Parts != nil:
	case granted(o):
		g = driver.Grant{Hold: h, Validity: driver.Validity{Since: since, TTL: h.ttl}, Token: uint64(n)}
		if !h.copied && !h.shared && !b.node.IsCluster() {
			g.Hold = passing{h}
		}
		return g, nil
	case o.Answer.Code == redisnode.Void && n == 0:
		return g, fmt.Errorf("redis %s: this attempt was taken back before: %w", b.node.Addr, driver.ErrUnavailable)
	case o.Answer.Code == redisnode.Foreign && n >= redisnode.NoKey:
		return g, b.node.Foreign(h.keys.Name)
	case o.Answer.Code == redisnode.Full && n > 0:
		return g, fmt.Errorf("redis %s: %d share %q, and no more can: %w", b.node.Addr, n, h.keys.Name, driver.ErrRefused)
	case o.Answer.Code == redisnode.Held && n >= redisnode.NoKey:
		if refused = (&driver.Refusal{}); wait {
			refused.Leave = h.leaveLine
		}
	case o.Answer.Code == redisnode.Sharers && n >= 0:
		if refused = (&driver.Refusal{}); wait {
			refused.AskWithin, refused.Leave = askWithin, h.removeNote
		}
	}
	if refused == nil {
		g.Hold = h
		return g, failure(b.node.Unexpected("acquire", o.Answer))
	}
	if refused.Remaining = redisnode.LeftOf(o.Answer.N); g.Hold != nil {
		refused.Undo = h.Undo
	}
	return driver.Grant{Refused: refused}, nil
}

// granted reports whether a script has granted the lock, with a token that it can have drawn.
func granted(o redisnode.Outcome) bool {
	return o.Err == nil && (o.Answer.Code == redisnode.Done || o.Answer.Code == redisnode.Again) &&
		o.Answer.N > 0 && o.Answer.N <= redisnode.MaxToken+1 && o.Answer.Text == "" && o.Answer.Parts == nil
}

// state is nil if the answer is 1, and matches ErrLost if the lock is not the caller's.
func (b *Backend) state(op string, o redisnode.Outcome) error {
	switch a := o.Answer; {
	case o.Err != nil:
		return failure(o.Err)
	case a.Code == redisnode.Done && a.N == 1 && a.Parts == nil:
		return nil
	case a.Code == redisnode.Gone && a.N == 0:
		return fmt.Errorf("redis %s: its key is gone: %w", b.node.Addr, driver.ErrLost)
	case a.Code == redisnode.Theirs && a.N == 0:
		return fmt.Errorf("redis %s: another has the lock: %w", b.node.Addr, driver.ErrLost)
	}
	return failure(b.node.Unexpected(op, o.Answer))
}

// Renew implements [driver.Hold].
func (h *hold) Renew(ctx context.Context) (driver.Validity, error) {
	k, ms, v := &h.keys, redisnode.Milliseconds(h.ttl), driver.Validity{Since: time.Now(), TTL: h.ttl}
	var a *redisnode.Attempt
	if h.shared {
		a = h.b.scripts.stay.Attempt("renew", k.Name, nil, k.Lock, k.Sharers(), k.Value(), ms)
	} else {
		a = h.b.scripts.renew.Attempt("renew", k.Name, nil, k.Lock, k.Value(), ms)
	}
	if err := h.b.state("renew", h.b.node.Do(ctx, a.Storing(&h.undo, h.ttl))); err != nil {
		return driver.Validity{}, err
	}
	return v, nil
}

// Release implements [driver.Hold]. Where a removal had to be sent twice, nil means that the lock is not the holder's
// any more: the second copy cannot tell the first one's work from a loss before. Of a lock that is kept, it finds
// what the first has kept, unless that has ended since.
func (h *hold) Release(ctx context.Context, keep time.Duration) error {
	var void time.Duration
	if h.copied {
		void = h.void()
	}
	if keep == 0 {
		return h.remove(ctx, h.shared, void)
	}
	k := &h.keys
	a := h.b.node.Retain(k, keep, void, &h.undo)
	if h.shared {
		a = h.b.scripts.remain.Attempt("release", k.Name, nil, k.Lock, k.Void(), k.Sharers(), k.Value(),
			redisnode.Milliseconds(keep), redisnode.Milliseconds(void)).Storing(&h.undo, keep)
	}
	began := time.Now()
	return h.once(h.b.node.Do(ctx, a), time.Since(began) >= keep)
}

// remove removes the lock if it is h's, or is kept for it, and wakes those who wait for it; as a sharer it removes h,
// and the note of h as a writer. With void > 0 an acquire of h that is still under way is refused when it
// arrives (R7): once it has returned nil, h has nothing and (within void) never will.
func (h *hold) remove(ctx context.Context, shared bool, void time.Duration) error {
	k := &h.keys
	a := h.b.node.Release(k, void)
	if shared {
		a = h.b.scripts.leave.Attempt(a.Op, k.Name, nil, k.Lock, k.Wait(), k.Void(), k.Sharers(), k.Value(),
			redisnode.Milliseconds(void))
	}
	return h.once(h.b.node.Do(ctx, a), true)
}

// once reads the answer to a release. Of several copies, the last that finds nothing says nothing of the first.
func (h *hold) once(o redisnode.Outcome, ended bool) error {
	err := h.b.state("release", o)
	if ended && o.Copies > 1 && errors.Is(err, driver.ErrLost) {
		return nil
	}
	return err
}

// Undo implements [driver.Hold]. Copies of the acquire that may still be under way find themselves void.
func (h *hold) Undo(ctx context.Context) error {
	return h.undo.Undo(ctx, func(ctx context.Context) error {
		err := ignoreLost(h.remove(ctx, h.shared, h.void()))
		if err == nil && !h.shared {
			err = h.removeNote(ctx)
		}
		return err
	})
}

// ignoreLost is err, unless that only says that there was nothing.
func ignoreLost(err error) error {
	if errors.Is(err, driver.ErrLost) {
		return nil
	}
	return err
}

// void is for how long a request of the attempt that arrives late is refused: as long as the lock would have
// lasted (R7), and no less than a minute.
func (h *hold) void() time.Duration { return max(h.lasts, redisnode.VoidTime) }

// leaveLine takes the client out of those who wait, so that the lock is not kept for it. Its place is not worth
// more time than a turn. Callers of it that have come meanwhile found the place, and ask anew, whatever
// has become of the request; for one that arrives later still there is the poll (R14).
func (h *hold) leaveLine(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	k := &h.keys
	o := h.b.node.Do(ctx, h.b.scripts.unline.Attempt("leave the line", k.Name, nil, k.Lock, k.Wait(), h.b.me))
	h.b.wakes.Wake(k.Name)
	return h.b.state("leave the line", o)
}

// removeNote removes what h has left in the service as a writer that waits.
func (h *hold) removeNote(ctx context.Context) error { return ignoreLost(h.remove(ctx, true, 0)) }

// As implements [driver.Aser].
func (h *hold) As(target any) bool {
	remains, ok := target.(*probe.Remains)
	if ok {
		*remains = func(ctx context.Context) error {
			return h.b.node.Client().Del(ctx, h.keys.Wait().(string)).Err()
		}
	}
	return ok
}

// RaiseToken implements [driver.TokenRaiser].
func (h *hold) RaiseToken(ctx context.Context, token uint64) error {
	if token > redisnode.MaxToken {
		return invalid("the token %d is above %d, up to where Redis counts exactly", token, uint64(redisnode.MaxToken))
	}
	k := &h.keys
	return h.b.state("raise the token", h.b.node.Do(ctx, h.b.scripts.raise.Attempt("raise the token", k.Name, nil,
		h.b.tokens(k.Name), k.Lock, k.Value(), strconv.FormatUint(token, 10))))
}

// passing is a hold that can be passed on. One is not on a Cluster, where messages go another way; nor where a copy
// of the acquire may still be under way, which only Release makes void.
type passing struct{ *hold }

// Pass implements [driver.Passer]. A copy of the request that arrives late does nothing: it passes on only what the
// old owner has, which by then has nothing and never will. Where that is not certain yet, next is made void
// first (R7).
func (h passing) Pass(ctx context.Context, req driver.Request, yield bool) (driver.Grant, error) {
	next, turn := h.b.newHold(req), "0"
	if yield {
		turn = "1"
	}
	since, k := time.Now(), &next.keys
	o := h.b.node.Do(ctx, h.b.scripts.pass.Attempt("pass", k.Name, nil, h.b.tokens(k.Name), k.Void(), k.Lock, k.Wait(),
		h.keys.Value(), k.Value(), redisnode.Milliseconds(next.lasts), turn, h.b.me).Storing(&next.undo, next.lasts))
	lost := o.Err == nil && (o.Answer.Code == redisnode.Gone || o.Answer.Code == redisnode.Theirs) && o.Answer.N == 0
	switch {
	case o.Err != nil && o.Err.Unknown:
		return driver.Grant{Hold: next}, failure(o.Err)
	case granted(o):
		return driver.Grant{Hold: passing{next}, Validity: driver.Validity{Since: since, TTL: req.TTL},
			Token: uint64(o.Answer.N)}, nil
	case o.Err == nil && o.Answer.Code == redisnode.Turn && o.Answer.N == 0, lost && o.Copies > 1:
		return driver.Grant{}, nil // if it is lost after a repetition, a copy before may have released it: see Release
	case lost:
		return driver.Grant{}, h.b.state("pass", o)
	case o.Err == nil && o.Answer.Code != redisnode.Void:
		return driver.Grant{Hold: next}, failure(h.b.node.Unexpected("pass", o.Answer))
	}
	return driver.Grant{}, h.Release(ctx, 0) // it cannot be granted to next, whatever the reason
}

// failure says, in the engine's words, why there was no answer. It goes by the cause and not by whether ctx has
// ended since: a context's error is the context's, and what trying again cannot mend is not ErrUnavailable.
func failure(err error) error {
	var e *redisnode.Error
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, redisnode.ErrClosed):
		return fmt.Errorf("%w: %w", driver.ErrClosed, err)
	case errors.As(err, &e) && e.Refused:
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}
