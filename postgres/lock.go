package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/batch"
)

// Acquire implements [locker.Backend]. A request whose outcome is not known may still arrive; what it
// then leaves ends with its TTL, or its MinHold.
func (b *Backend) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	h := &hold{b: b, kind: &b.exclusive, name: req.Name, owner: req.Owner, ttl: req.TTL}
	if req.Shared {
		h.kind = &b.sharing
	}
	first := max(req.TTL, req.MinHold)
	answer, err := h.kind.acquires.Do(ctx, request{
		name: req.Name, owner: req.Owner, label: req.Label, ttl: first, waits: req.Wait,
	})
	g := answer.Value
	switch {
	case err != nil && answer.Sent && unknown(err):
		return locker.Grant{Hold: h}, b.failure(ctx, err)
	case err != nil:
		return locker.Grant{}, b.failure(ctx, err)
	case g.full:
		return locker.Grant{}, fmt.Errorf("postgres %s: %w: %d share %q, and no more can",
			b.addr, locker.ErrRefused, locker.MaxSharers, req.Name)
	case g.token == 0 && g.sharers && req.Wait && !req.Shared:
		return locker.Grant{}, b.waitForSharers(ctx, req, g.left)
	case g.token == 0:
		return locker.Grant{}, &locker.HeldError{Remaining: g.left}
	}
	validity := locker.Validity{Since: answer.Since, TTL: first}
	return locker.Grant{Hold: h, Validity: validity, Token: g.token}, nil
}

// request is what one caller asks for.
type request struct {
	name, owner, label string
	ttl                time.Duration
	waits              bool
}

// key keeps two requests for one name out of one statement: an UPDATE would answer only one of them.
func (r request) key() string { return r.name }

// bounds are those of the statements that callers share. Each caller needs one place in the server's table of
// locks, which has 64 for each connection by default.
func (b *Backend) bounds() batch.Options {
	return batch.Options{
		Max: 64, Flights: 2, Timeout: b.opts.Timeout,
		Slow: 100 * time.Millisecond, Late: 250 * time.Millisecond,
	}
}

// kind has the requests for locks of one kind: those that are held alone, or those of sharers.
type kind struct {
	acquires *batch.Batcher[request, grant]
	renewals *batch.Batcher[request, bool]
	releases *batch.Batcher[request, end]
}

// wait returns when nothing is under way.
func (k *kind) wait() {
	k.acquires.Wait()
	k.renewals.Wait()
	k.releases.Wait()
}

// grant is the answer to a request for a lock: its token, or how long its holder has it at most.
type grant struct {
	token   uint64
	left    time.Duration
	sharers bool // have it
	full    bool // there are as many of them as can be
}

// askIn is when to ask for a lock again that ends in that time. For one that has ended, a transaction that
// protects it goes on: the longer it has, the longer it may.
func askIn(left time.Duration) time.Duration {
	if left < 0 {
		left = min(-left/2, slowlyAgain)
	}
	return max(left, askAgain)
}

func (b *Backend) sendAcquires(ctx context.Context, requests []request) ([]grant, error) {
	names, owners := namesOf(requests)
	labels := make([][]byte, len(requests))
	ttls, waits := make([]int64, len(requests)), make([]bool, len(requests))
	index := make(map[string]int, len(requests))
	var waited [][]byte // names that somebody waits for, and who that is
	var waiters []string
	for i, a := range requests {
		labels[i], ttls[i], waits[i] = []byte(a.label), a.ttl.Microseconds(), a.waits
		index[a.name] = i
		if a.waits {
			waited, waiters = append(waited, names[i]), append(waiters, owners[i])
		}
	}
	var answers []grant
	err := b.query(ctx, onStandby, func(s *statements, trip *pgx.Batch) {
		answers = slices.Repeat([]grant{{left: askAgain}}, len(requests))
		keys := s.keysOf(requests)
		var name []byte
		var value int64
		var sharers bool
		trip.Queue(s.acquire, names, owners, labels, ttls, keys).Query(each([]any{&name, &value}, func() {
			answers[index[string(name)]].token = uint64(value)
		}))
		if len(waited) > 0 {
			trip.Queue(s.mark, waited, waiters)
		}
		trip.Queue(s.tell, names, owners, waits, keys).Query(each([]any{&name, &value, &sharers}, func() {
			g := &answers[index[string(name)]]
			g.left, g.sharers = askIn(time.Duration(value)*time.Microsecond), sharers
		}))
	})
	b.sweep()
	return answers, err
}

// each reads rows into values, and calls found after each.
func each(values []any, found func()) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			if err := rows.Scan(values...); err != nil {
				return err
			}
			found()
		}
		return rows.Err()
	}
}

// hold is a lock that was granted, or may have been.
type hold struct {
	b           *Backend
	kind        *kind
	name, owner string
	ttl         time.Duration
}

// Renew implements [locker.Hold].
func (h *hold) Renew(ctx context.Context) (locker.Validity, error) {
	answer, err := h.kind.renewals.Do(ctx, request{name: h.name, owner: h.owner, ttl: h.ttl})
	if err != nil {
		return locker.Validity{}, h.b.failure(ctx, err)
	}
	if !answer.Value {
		return locker.Validity{}, h.lost()
	}
	return locker.Validity{Since: answer.Since, TTL: h.ttl}, nil
}

func (b *Backend) sendRenewals(ctx context.Context, requests []request) ([]bool, error) {
	names, owners := namesOf(requests)
	ttls := make([]int64, len(requests))
	for i, a := range requests {
		ttls[i] = a.ttl.Microseconds()
	}
	var held []bool
	err := b.query(ctx, withLeases, func(s *statements, trip *pgx.Batch) {
		held = make([]bool, len(requests))
		var i int64
		trip.Queue(s.renew, names, owners, ttls).Query(each([]any{&i}, func() { held[i-1] = true }))
	})
	b.sweep()
	return held, err
}

// Release implements [locker.Hold].
func (h *hold) Release(ctx context.Context) error {
	answer, err := h.kind.releases.Do(ctx, request{name: h.name, owner: h.owner})
	switch {
	case err != nil:
		return h.b.failure(ctx, err)
	case answer.Value.held:
		return nil
	case answer.Value.times > 1:
		return h.b.failure(ctx, errLostRelease)
	}
	return h.lost()
}

// errLostRelease is why it is not known whether a release was in time.
var errLostRelease = errors.New("the connection was lost, and it is not known " +
	"whether the lock was held until then")

// end is the answer to a release: whether the lock was held, and how often that was asked.
type end struct {
	held  bool
	times int
}

func (b *Backend) sendReleases(ctx context.Context, requests []request) ([]end, error) {
	names, owners := namesOf(requests)
	var ends []end
	times := 0
	err := b.query(ctx, untilACrash, func(s *statements, trip *pgx.Batch) {
		times++
		ends = slices.Repeat([]end{{times: times}}, len(requests))
		var i int64
		var held bool
		trip.Queue(s.release, names, owners).
			Query(each([]any{&i, &held, nil}, func() { ends[i-1].held = held }))
	})
	return ends, err
}

func (h *hold) lost() error {
	return fmt.Errorf("postgres %s: its row is not the holder's any more, or has expired: %w",
		h.b.addr, locker.ErrLost)
}

func namesOf(requests []request) (names [][]byte, owners []string) {
	names, owners = make([][]byte, len(requests)), make([]string, len(requests))
	for i, a := range requests {
		names[i], owners[i] = []byte(a.name), a.owner
	}
	return names, owners
}

func (s *statements) keysOf(requests []request) []int64 {
	keys := make([]int64, len(requests))
	for i, a := range requests {
		keys[i] = s.key(a.name)
	}
	return keys
}
