package single

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/redisnode"
)

// asker asks one Redis for locks with owner values of the test's choice: each method is one script, as the holds of a
// Backend call it.
type asker struct{ *Backend }

func on(b *Backend) asker { return asker{b} }

// request asks for a lock.
type request struct {
	ttl             time.Duration
	waiting, shared bool
}

// answer is what the server said to a request.
type answer struct {
	granted bool
	again   bool // granted before to this very value
	token   uint64
	left    time.Duration // not granted: the rest of the holder's TTL; negative: it never expires
	foreign bool          // the key is there but is no lock
	void    bool          // a release had already made this value void
	sharers bool          // sharers have it, and a writer that waits has left its note

	// Of pass.
	turn bool // released, and it is another client's turn
}

// state is whose a lock was.
type whose int

const (
	gone whose = iota
	mine
	theirs
)

func (s asker) hold(k *redisnode.Keys, shared bool) *hold {
	return &hold{b: s.Backend, keys: *k, ttl: ttl, lasts: ttl, shared: shared}
}

func (s asker) acquire(ctx context.Context, k *redisnode.Keys, r request) (answer, error) {
	script, note := s.scripts.acquire, k.Lock
	if r.shared {
		script = s.scripts.share
	}
	if r.waiting {
		note = k.Wait()
	}
	o := s.node.Do(ctx, script.Attempt("acquire", k.Name, s.tokens(k.Name), k.Void(), k.Lock, note, k.Value(),
		redisnode.Milliseconds(r.ttl)))
	_, err := s.grant(s.hold(k, r.shared), o, time.Now(), r.waiting)
	if e := (*redisnode.Error)(nil); errors.As(err, &e) {
		return answer{}, err
	}
	return read(o), nil
}

func read(o redisnode.Outcome) (a answer) {
	code, n := o.Answer.Code, o.Answer.N
	if a.granted = granted(o); a.granted {
		a.again, a.token = code == redisnode.Again, uint64(n)
		return a
	}
	a.left = redisnode.LeftOf(n)
	a.foreign, a.void, a.sharers = code == redisnode.Foreign, code == redisnode.Void, code == redisnode.Sharers
	a.turn = code == redisnode.Turn
	return a
}

func (s asker) pass(
	ctx context.Context, old, k *redisnode.Keys, ttl time.Duration, yield bool,
) (answer, error) {
	turn := "0"
	if yield {
		turn = "1"
	}
	o := s.node.Do(ctx, s.scripts.pass.Attempt("pass", k.Name, nil, s.tokens(k.Name), k.Void(), k.Lock, k.Wait(),
		old.Value(), k.Value(), redisnode.Milliseconds(ttl), turn, s.me))
	if o.Err != nil {
		return answer{}, o.Err
	}
	return read(o), nil
}

func stateOfError(err error) (whose, error) {
	switch {
	case err == nil:
		return mine, nil
	case !errors.Is(err, driver.ErrLost):
		return gone, err
	case strings.Contains(err.Error(), "another has"):
		return theirs, nil
	}
	return gone, nil
}

func (s asker) renew(
	ctx context.Context, k *redisnode.Keys, shared bool, ttl time.Duration,
) (whose, error) {
	h := s.hold(k, shared)
	h.ttl = ttl
	_, err := h.Renew(ctx)
	return stateOfError(err)
}

func (s asker) release(ctx context.Context, k *redisnode.Keys, shared bool, void time.Duration) (whose, error) {
	return stateOfError(s.hold(k, shared).remove(ctx, shared, void))
}

func (s asker) keep(
	ctx context.Context, k *redisnode.Keys, shared bool, keep, void time.Duration,
) (whose, error) {
	h := s.hold(k, shared)
	h.copied, h.lasts = void > 0, void
	return stateOfError(h.Release(ctx, keep))
}

func (s asker) unline(ctx context.Context, k *redisnode.Keys) (whose, error) {
	return stateOfError(s.hold(k, false).leaveLine(ctx))
}
