package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/batch"
	"github.com/golockers/locker/internal/clock"
)

const (
	// askForSharers is when a writer that waits for sharers asks again, and so renews its note, which lasts
	// for a second.
	askForSharers = 300 * time.Millisecond
	// askAgain and slowlyAgain are when to ask for a name that is not held and not to be had: at first,
	// and when that lasts.
	askAgain, slowlyAgain = 5 * time.Millisecond, 500 * time.Millisecond
	// busyFor is how long Acquire asks for such a name itself: another may just be getting it, and what is
	// not held must not be refused as if it were. A sharer asks for the Timeout: those that are let in before
	// it do not hold the name against it.
	busyFor = time.Second
	// protectedFor is how long a transaction has to be in the way before it is taken for one that called
	// Held. That of another client that has just looked at a free name looks the same until its commit, which
	// may wait for a standby.
	protectedFor = 250 * time.Millisecond
)

// Acquire implements [driver.Backend]. A request whose outcome is not known may still arrive; what it
// then leaves ends with its TTL, or its MinHold.
func (b *Backend) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	h := &hold{b: b, name: req.Name, owner: req.Owner, ttl: req.TTL}
	acquires, most := b.acquires, busyFor
	if req.Shared {
		h.sharer, acquires, most = req.Owner, b.joins, b.opts.Timeout
	}
	r := h.request(max(req.TTL, req.MinHold))
	r.label, r.minHold, r.waits = req.Label, req.MinHold, req.Wait
	lost, unsure := 0, false // copies that may yet be granted (R7)
	var protected time.Time  // since when a transaction that seems to have called Held is in the way
	ask := func() (batch.Answer[grant], error) {
		answer, err := do(ctx, acquires, r)
		lost += answer.Value.lost
		unsure = err != nil && answer.Sent && unknown(err)
		return answer, err
	}
	answer, err := insist(ctx, most, func() (batch.Answer[grant], bool, error) {
		answer, err := ask()
		if err == nil && answer.Value.ended && !r.after {
			r.after, protected = true, time.Time{}
			answer, err = ask()
		}
		g := answer.Value
		if !g.protected {
			protected = time.Time{}
		} else if protected.IsZero() {
			protected = time.Now()
		}
		return answer, g.free || g.unmarked || g.protected && time.Since(protected) < protectedFor, err
	})
	g := answer.Value
	var left driver.Grant // what may be there beside an error or a refusal
	if lost > 0 || unsure {
		left.Hold = h
	}
	switch {
	case err != nil:
		return left, b.failure(ctx, err)
	case g.full:
		return left, fmt.Errorf("postgres %s: %w: %d share %q, and no more can",
			b.addr, driver.ErrRefused, driver.MaxSharers, req.Name)
	case g.free && req.Shared:
		return left, b.failure(ctx, errLetsIn)
	case g.token == 0:
		left.Refused = &driver.Refusal{Remaining: g.left}
		if g.shared && req.Wait && !req.Shared {
			left.Refused.AskWithin, left.Refused.Leave = askForSharers, h.unmark
		}
		if left.Hold != nil {
			left.Refused.Undo, left.Hold = h.Undo, nil
		}
		return left, nil
	}
	validity := driver.Validity{Since: answer.Since, TTL: req.TTL}
	return driver.Grant{Hold: h, Validity: validity, Token: g.token}, nil
}

// do sends a request. One that may store or prolong the hold, which has a ttl, is noted for Undo until it is
// not sent any more; whoever asked may have left before.
func do[A any](ctx context.Context, by *batch.Batcher[request, A], r request) (batch.Answer[A], error) {
	if r.ttl > 0 {
		r.hold.undo.Sends(r.ttl)
	}
	answer, err := by.Do(ctx, r)
	if !answer.Sent {
		sent([]request{r}, false)
	}
	return answer, err
}

// sent says that requests are not sent any more; late: they may still arrive.
func sent(requests []request, late bool) {
	for _, r := range requests {
		if r.ttl > 0 {
			r.hold.undo.Sent(late)
		}
	}
}

// insist asks again, less and less often, while the answer is that something is busy, for that long at most.
func insist[A any](ctx context.Context, most time.Duration, ask func() (batch.Answer[A], bool, error)) (
	batch.Answer[A], error,
) {
	began := time.Now()
	for pause := askAgain; ; pause = min(2*pause, 16*askAgain) {
		answer, busy, err := ask()
		if err != nil || !busy || time.Since(began) > most || clock.Sleep(ctx, clock.Jitter(pause)) != nil {
			return answer, err
		}
	}
}

// request is what one caller asks for.
type request struct {
	name, sharer, owner, label string        // sharer is that of the row: "" of the lock itself
	ttl, minHold               time.Duration // ttl of a release: for which the lock is kept
	waits                      bool
	after                      bool // it is asked for alone, and sharers had it last
	hold                       *hold
}

// key keeps two requests for one row out of one statement, which would answer only one of them. Locks that
// are held alone are in the order of their names, in which statements lock their rows. No name has the byte
// FF.
func (r request) key() string {
	if r.sharer == "" {
		return r.name
	}
	return r.name + "\xff" + r.sharer
}

// column is what one of the arguments of a statement, an array, has for each request.
func column[T any](requests []request, of func(r *request) T) []T {
	all := make([]T, len(requests))
	for i := range requests {
		all[i] = of(&requests[i])
	}
	return all
}

func nameOf(r *request) []byte   { return []byte(r.name) }
func ownerOf(r *request) string  { return r.owner }
func sharerOf(r *request) string { return r.sharer }
func ttlOf(r *request) int64     { return r.ttl.Microseconds() }

// askers are the arguments of what takes latches, and callers those of what gives locks.
func (s *statements) askers(requests []request) []any {
	return []any{column(requests, nameOf), column(requests, ownerOf),
		column(requests, func(r *request) int64 { return s.key(r.name) }),
		column(requests, func(r *request) bool { return r.waits })}
}

func callers(askers []any, requests []request) []any {
	return append(askers, column(requests, func(r *request) []byte { return []byte(r.label) }),
		column(requests, ttlOf), column(requests, func(r *request) int64 { return r.minHold.Microseconds() }))
}

// only returns the requests that are meant.
func only(requests []request, meant func(r *request) bool) (some []request) {
	for i := range requests {
		if meant(&requests[i]) {
			some = append(some, requests[i])
		}
	}
	return some
}

// bounds are those of the statements that callers share. A caller needs a place in the server's table of
// locks, which has 64 for each connection by default, and a sharer two.
func (b *Backend) bounds(most int) batch.Options {
	return batch.Options{
		Max: most, Flights: 2, Timeout: b.opts.Timeout,
		Slow: 100 * time.Millisecond, Late: 250 * time.Millisecond,
	}
}

// grant is the answer to a request for a lock: its token, or how long its holder has it at most.
type grant struct {
	token    uint64
	left     time.Duration
	shared   bool // sharers have it
	full     bool // there are as many of them as can be
	ended    bool // sharers had it last, and nobody has it
	free     bool // nobody has it, and it may be had at the next moment
	unmarked bool // its row could not be marked for one who waits
	// protected: nobody holds it, and a transaction that called Held seems to be in the way.
	protected bool
	lost      int // so many copies of the request were lost, which may yet be granted (R7)
}

// askIn is when to ask for a lock again that ends in that time. For one that has ended, a transaction that
// protects it goes on: the longer it has, the longer it may.
func askIn(left time.Duration) time.Duration {
	if left < 0 {
		left = min(-left/2, slowlyAgain)
	}
	return max(left, askAgain)
}

// acquire asks for locks alone, each of another name, or for sharers, of whom several may ask for one name.
func (b *Backend) acquire(ctx context.Context, requests []request, shares bool) (answers []grant, err error) {
	index := make(map[string]int, len(requests)) // of those who ask for a name alone
	for i, r := range requests {
		index[r.name] = i
	}
	lost, err := b.query(ctx, onStandby, func(s *statements, trip *pgx.Batch) {
		answers = slices.Repeat([]grant{{free: true}}, len(requests)) // until told otherwise
		var i, token, left int64
		var name []byte
		var full, unmarked, shared, had bool
		granted := each([]any{&name, &token}, func() { answers[index[string(name)]] = grant{token: uint64(token)} })
		told := each([]any{&i, &token, &full, &left, &unmarked, &shared, &had}, func() {
			g := grant{token: uint64(token), full: full, shared: shared, left: askIn(time.Duration(left) * time.Microsecond)}
			if token == 0 && !full {
				g.free, g.unmarked, g.protected, g.ended = left == 0, unmarked, left < 0, had && !shared && left <= 0
			}
			if unmarked {
				g.left = min(g.left, slowlyAgain)
			}
			answers[i-1] = g
		})
		askers := s.askers(requests)
		all := callers(askers, requests)
		after := only(requests, func(r *request) bool { return r.after })
		waiting := only(requests, func(r *request) bool { return r.waits })
		if shares {
			trip.Queue(s.takeShares, askers...)
		} else {
			trip.Queue(s.grant, all...).Query(granted)
		}
		if len(after) > 0 {
			some := callers(s.askers(after), after)
			trip.Queue(s.take, some...)
			trip.Queue(s.give, some...).Query(granted)
		}
		if len(waiting) > 0 {
			trip.Queue(s.mark, column(waiting, nameOf), column(waiting, ownerOf), shares)
		}
		if shares {
			trip.Queue(s.join, all...).Query(told)
		} else {
			trip.Queue(s.tell, append(askers, column(requests, func(r *request) bool { return r.after }))...).Query(told)
		}
	})
	for i := range answers {
		answers[i].lost = lost
	}
	sent(requests, lost > 0 || err != nil && unknown(err))
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
	undo                driver.Undo
	b                   *Backend
	name, sharer, owner string // sharer is "" if it is held alone, and the owner otherwise
	ttl                 time.Duration
}

func (h *hold) request(ttl time.Duration) request {
	return request{name: h.name, sharer: h.sharer, owner: h.owner, ttl: ttl, hold: h}
}

// fate is the answer to a request to renew or release: whether the lock was held, or kept.
type fate struct {
	held bool
	busy bool // it is there, and somebody else's transaction has locked its row
	lost int  // copies of a release that were lost
}

var (
	errLetsIn    = errors.New("the server is too slow: another request for this name has not finished")
	errRowLocked = errors.New("a transaction has locked the lock's row, and does not end")
	// errLostRelease is why it is not known whether a release was in time.
	errLostRelease = errors.New("the connection was lost, and it is not known whether the lock was held until then")
)

// Renew implements [driver.Hold].
func (h *hold) Renew(ctx context.Context) (driver.Validity, error) {
	answer, err := insist(ctx, h.b.opts.Timeout, func() (batch.Answer[fate], bool, error) {
		answer, err := do(ctx, h.b.renewals, h.request(h.ttl))
		return answer, answer.Value.busy, err
	})
	switch {
	case err != nil:
		return driver.Validity{}, h.b.failure(ctx, err)
	case answer.Value.busy:
		return driver.Validity{}, h.b.failure(ctx, errRowLocked)
	case !answer.Value.held:
		return driver.Validity{}, h.lost()
	}
	return driver.Validity{Since: answer.Since, TTL: h.ttl}, nil
}

// Release implements [driver.Hold].
func (h *hold) Release(ctx context.Context, keep time.Duration) error {
	r := h.request(0)
	if keep > 0 {
		r.ttl = keep + time.Microsecond - 1 // the server counts whole ones
	}
	answer, err := do(ctx, h.b.releases, r)
	switch {
	case err != nil:
		return h.b.failure(ctx, err)
	case answer.Value.held:
		return nil
	case answer.Value.lost > 0:
		return h.b.failure(ctx, errLostRelease)
	}
	return h.lost()
}

// Undo implements [driver.Hold].
func (h *hold) Undo(ctx context.Context) error {
	return h.undo.Undo(ctx, func(ctx context.Context) error { return h.Release(ctx, 0) })
}

func (b *Backend) sendRenewals(ctx context.Context, requests []request) (fates []fate, err error) {
	_, err = b.query(ctx, withLeases, func(s *statements, trip *pgx.Batch) {
		fates = make([]fate, len(requests))
		var i int64
		var renewed bool
		trip.Queue(s.renew, column(requests, nameOf), column(requests, sharerOf), column(requests, ownerOf),
			column(requests, ttlOf)).Query(each([]any{&i, &renewed}, func() {
			fates[i-1] = fate{held: true, busy: !renewed}
		}))
	})
	sent(requests, false)
	b.sweep()
	return fates, err
}

func (b *Backend) sendReleases(ctx context.Context, requests []request) (fates []fate, err error) {
	index := make(map[string]int, len(requests))
	for i, r := range requests {
		index[r.key()] = i
	}
	lost, err := b.query(ctx, untilACrash, func(s *statements, trip *pgx.Batch) {
		fates = make([]fate, len(requests))
		var row request
		var name []byte
		var held bool
		ended := each([]any{&name, &row.sharer, &held, nil}, func() {
			row.name = string(name)
			fates[index[row.key()]].held = held
		})
		frees := only(requests, func(r *request) bool { return r.ttl == 0 && r.sharer == "" })
		leaves := only(requests, func(r *request) bool { return r.ttl == 0 && r.sharer != "" })
		keeps := only(requests, func(r *request) bool { return r.ttl > 0 })
		if len(frees) > 0 {
			trip.Queue(s.release, column(frees, nameOf), column(frees, func(r *request) []byte {
				return []byte(r.name + r.owner)
			})).Query(ended)
		}
		if len(leaves) > 0 {
			trip.Queue(s.leave, column(leaves, nameOf), column(leaves, sharerOf)).Query(ended)
		}
		if len(keeps) > 0 {
			trip.Queue(onServerSQL)
			trip.Queue(s.keep, column(keeps, nameOf), column(keeps, sharerOf), column(keeps, ownerOf),
				column(keeps, ttlOf)).Query(ended)
		}
	})
	for i := range fates {
		fates[i].lost = lost
	}
	sent(requests, false)
	return fates, err
}

// unmark removes the note of a writer that does not wait for sharers any more.
func (h *hold) unmark(ctx context.Context) error {
	return h.b.operate(ctx, untilACrash, func(s *statements, trip *pgx.Batch) {
		trip.Queue(s.unmark, []byte(h.name), h.owner)
	})
}

func (h *hold) lost() error {
	return fmt.Errorf("postgres %s: its row is not the holder's any more, or has expired: %w",
		h.b.addr, driver.ErrLost)
}
