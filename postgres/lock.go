package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/golockers/locker"
)

// Acquire implements [locker.Backend]. A request whose outcome is not known may still arrive; what it
// then leaves ends with its TTL, or its MinHold.
func (b *Backend) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	h := &hold{b: b, name: req.Name, owner: req.Owner, ttl: req.TTL}
	first := max(req.TTL, req.MinHold)
	g, since, sent, err := b.acquires.do(ctx, ask{name: req.Name, owner: req.Owner, label: req.Label, ttl: first, waits: req.Wait})
	switch {
	case err != nil && sent && unknown(err):
		return locker.Grant{Hold: h}, b.failure(ctx, err)
	case err != nil:
		return locker.Grant{}, b.failure(ctx, err)
	case g.token == 0:
		return locker.Grant{}, &locker.HeldError{Remaining: g.left}
	}
	return locker.Grant{Hold: h, Validity: locker.Validity{Since: since, TTL: first}, Token: g.token}, nil
}

// grant is the answer to one who asks for a name: the token, or how long its holder has it at most.
type grant struct {
	token uint64
	left  time.Duration
}

// askIn is when to ask for a lock again that ends in that time. For one that has ended, a transaction that
// protects it goes on: the longer it has, the longer it may.
func askIn(left time.Duration) time.Duration {
	if left < 0 {
		left = min(-left/2, slowlyAgain)
	}
	return max(left, askAgain)
}

func (b *Backend) sendAcquires(ctx context.Context, asks []ask) ([]grant, error) {
	names, owners := namesOf(asks)
	labels, ttls, waits := make([][]byte, len(asks)), make([]int64, len(asks)), make([]bool, len(asks))
	index, statement := make(map[string]int, len(asks)), b.sql.acquire
	answers := make([]grant, len(asks))
	for i, a := range asks {
		labels[i], ttls[i], waits[i] = []byte(a.label), a.ttl.Microseconds(), a.waits
		index[a.name], answers[i].left = i, askAgain
		if a.waits {
			statement = b.sql.acquireWaiting
		}
	}
	standbys, err := b.query(ctx, true, statement, []any{names, owners, labels, ttls, waits, b.keysOf(asks)}, func(rows pgx.Rows) error {
		var name []byte
		var token, left int64
		err := rows.Scan(&name, &token, &left)
		if g := &answers[index[string(name)]]; err == nil && g.token == 0 {
			*g = grant{uint64(token), askIn(time.Duration(left) * time.Microsecond)}
		}
		return err
	})
	if err == nil && b.opts.FailoverSafe && standbys == "" {
		err = errNoStandby // what was granted is taken back
	}
	b.sweep()
	return answers, err
}

// hold is a lock that was granted, or may have been.
type hold struct {
	b           *Backend
	name, owner string
	ttl         time.Duration
}

// Renew implements [locker.Hold].
func (h *hold) Renew(ctx context.Context) (locker.Validity, error) {
	held, since, _, err := h.b.renewals.do(ctx, ask{name: h.name, owner: h.owner, ttl: h.ttl})
	if err != nil {
		return locker.Validity{}, h.b.failure(ctx, err)
	}
	if !held {
		return locker.Validity{}, h.lost()
	}
	return locker.Validity{Since: since, TTL: h.ttl}, nil
}

func (b *Backend) sendRenewals(ctx context.Context, asks []ask) ([]bool, error) {
	names, owners := namesOf(asks)
	ttls := make([]int64, len(asks))
	for i, a := range asks {
		ttls[i] = a.ttl.Microseconds()
	}
	held := make([]bool, len(asks))
	_, err := b.query(ctx, true, b.sql.renew, []any{names, owners, ttls}, func(rows pgx.Rows) error {
		var i int64
		if err := rows.Scan(&i); err != nil {
			return err
		}
		held[i-1] = true
		return nil
	})
	b.sweep()
	return held, err
}

// Release implements [locker.Hold].
func (h *hold) Release(ctx context.Context) error {
	held, _, _, err := h.b.ending.do(ctx, ask{name: h.name, owner: h.owner})
	if err != nil {
		return h.b.failure(ctx, err)
	}
	if !held {
		return h.lost()
	}
	return nil
}

func (b *Backend) sendReleases(ctx context.Context, asks []ask) ([]bool, error) {
	names, owners := namesOf(asks)
	held := make([]bool, len(asks))
	_, err := b.query(ctx, false, b.sql.release, []any{names, owners, b.keysOf(asks)}, func(rows pgx.Rows) error {
		var i int64
		var was bool
		if err := rows.Scan(&i, &was, nil); err != nil {
			return err
		}
		held[i-1] = was
		return nil
	})
	return held, err
}

func (h *hold) lost() error {
	return fmt.Errorf("postgres %s: its row is not the holder's any more, or has expired: %w", h.b.addr, locker.ErrLost)
}

func namesOf(asks []ask) (names [][]byte, owners []string) {
	names, owners = make([][]byte, len(asks)), make([]string, len(asks))
	for i, a := range asks {
		names[i], owners[i] = []byte(a.name), a.owner
	}
	return names, owners
}

func (b *Backend) keysOf(asks []ask) []int64 {
	keys := make([]int64, len(asks))
	for i, a := range asks {
		keys[i] = b.key(a.name)
	}
	return keys
}
