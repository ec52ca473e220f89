package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	index := make(map[string]int, len(asks))
	var waited [][]byte // names that somebody waits for, and who that is
	var waiters []string
	for i, a := range asks {
		labels[i], ttls[i], waits[i] = []byte(a.label), a.ttl.Microseconds(), a.waits
		index[a.name] = i
		if a.waits {
			waited, waiters = append(waited, names[i]), append(waiters, owners[i])
		}
	}
	var answers []grant
	err := b.query(ctx, onStandby, func(s *statements, batch *pgx.Batch) {
		answers = slices.Repeat([]grant{{left: askAgain}}, len(asks))
		keys := s.keysOf(asks)
		answer := func(set func(g *grant, value int64)) func(pgx.Rows) error {
			var name []byte
			var value int64
			return each([]any{&name, &value}, func() error { set(&answers[index[string(name)]], value); return nil })
		}
		batch.Queue(s.acquire, names, owners, labels, ttls, keys).
			Query(answer(func(g *grant, token int64) { g.token = uint64(token) }))
		if len(waited) > 0 {
			batch.Queue(s.mark, waited, waiters)
		}
		batch.Queue(s.tell, names, owners, waits, keys).
			Query(answer(func(g *grant, left int64) { g.left = askIn(time.Duration(left) * time.Microsecond) }))
	})
	b.sweep()
	return answers, err
}

// each reads rows into values, and calls found after each.
func each(values []any, found func() error) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			if err := rows.Scan(values...); err != nil {
				return err
			}
			if err := found(); err != nil {
				return err
			}
		}
		return rows.Err()
	}
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
	var held []bool
	err := b.query(ctx, withLeases, func(s *statements, batch *pgx.Batch) {
		held = make([]bool, len(asks))
		var i int64
		batch.Queue(s.renew, names, owners, ttls).Query(each([]any{&i}, func() error { held[i-1] = true; return nil }))
	})
	b.sweep()
	return held, err
}

// Release implements [locker.Hold].
func (h *hold) Release(ctx context.Context) error {
	end, _, _, err := h.b.ending.do(ctx, ask{name: h.name, owner: h.owner})
	switch {
	case err != nil:
		return h.b.failure(ctx, err)
	case end.held:
		return nil
	case end.times > 1:
		return h.b.failure(ctx, errors.New("the connection was lost, and it is not known whether the lock was held until then"))
	}
	return h.lost()
}

// end is the answer to a release: whether the lock was held, and how often that was asked.
type end struct {
	held  bool
	times int
}

func (b *Backend) sendReleases(ctx context.Context, asks []ask) ([]end, error) {
	names, owners := namesOf(asks)
	var ends []end
	times := 0
	err := b.query(ctx, untilACrash, func(s *statements, batch *pgx.Batch) {
		times++
		ends = slices.Repeat([]end{{times: times}}, len(asks))
		var i int64
		var held bool
		batch.Queue(s.release, names, owners).Query(each([]any{&i, &held, nil}, func() error { ends[i-1].held = held; return nil }))
	})
	return ends, err
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

func (s *statements) keysOf(asks []ask) []int64 {
	keys := make([]int64, len(asks))
	for i, a := range asks {
		keys[i] = s.key(a.name)
	}
	return keys
}
