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
	acquires := b.acquires
	if req.Shared {
		h.sharer, acquires = req.Owner, b.joins
	}
	r := h.request(max(req.TTL, req.MinHold))
	r.label, r.minHold, r.waits = req.Label, req.MinHold, req.Wait
	lost, unsure := 0, false // copies that may yet be granted (R7)
	var protected time.Time  // since when a transaction that seems to have called Held is in the way
	ask := func() (batch.Answer[grant], bool, error) {
		answer, err := do(ctx, acquires, r)
		lost += answer.Value.lost
		unsure = err != nil && answer.Sent && unknown(err)
		switch {
		case !answer.Value.protected:
			protected = time.Time{}
		case protected.IsZero():
			protected = time.Now()
		}
		return answer, answer.Value.busy || answer.Value.protected && time.Since(protected) < protectedFor, err
	}
	most := busyFor
	if req.Shared {
		most = b.opts.Timeout
	}
	answer, err := insist(ctx, most, func() (batch.Answer[grant], bool, error) {
		answer, again, err := ask()
		if err == nil && answer.Value.ended && !req.Shared && !r.after {
			r.after, protected = true, time.Time{}
			return ask()
		}
		return answer, again, err
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
	case g.free() && req.Shared:
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
	after                      bool // sharers had it last; never of a sharer, which takes its latch each time
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

// bounds are those of the statements that callers share. A caller needs a place in the server's table of
// locks, which has 64 for each connection by default, and a sharer two.
func (b *Backend) bounds(most int) batch.Options {
	return batch.Options{
		Max: most, Flights: 2, Timeout: b.opts.Timeout,
		Slow: 100 * time.Millisecond, Late: 250 * time.Millisecond,
	}
}

// columns are requests as the arrays of a statement.
type columns struct {
	names, labels              [][]byte
	sharers, owners            []string
	ttls, minHolds, keys, each []int64
	waits, after               []bool
}

// columnsOf has those of the requests that are meant; each has their numbers, from 1.
func (s *statements) columnsOf(requests []request, meant func(request) bool) (c columns) {
	for i, r := range requests {
		if meant != nil && !meant(r) {
			continue
		}
		c.names, c.labels = append(c.names, []byte(r.name)), append(c.labels, []byte(r.label))
		c.sharers, c.owners = append(c.sharers, r.sharer), append(c.owners, r.owner)
		c.ttls, c.minHolds = append(c.ttls, r.ttl.Microseconds()), append(c.minHolds, r.minHold.Microseconds())
		c.keys, c.each = append(c.keys, s.key(r.name)), append(c.each, int64(i+1))
		c.waits, c.after = append(c.waits, r.waits), append(c.after, r.after)
	}
	return c
}

// callers are the arguments of what takes latches, and gives.
func (c columns) callers() []any {
	return []any{c.names, c.owners, c.keys, c.waits, c.labels, c.ttls, c.minHolds}
}

// grant is the answer to a request for a lock: its token, or how long its holder has it at most.
type grant struct {
	token  uint64
	left   time.Duration
	shared bool // sharers have it
	full   bool // there are as many of them as can be
	ended  bool // sharers had it last, and nobody has it
	busy   bool // it may be had at the next moment, or its row could not be marked for one who waits
	// protected: nobody holds it, and a transaction that called Held seems to be in the way.
	protected bool
	lost      int // so many copies of the request were lost, which may yet be granted (R7)
}

// free is whether nobody has the lock, although it was not granted: askIn makes the shortest pause of no time
// left. One that is busy since its row could not be marked is held, and has more left unless it is about to end.
func (g grant) free() bool { return g.token == 0 && g.busy && g.left <= askAgain }

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
	index := make(map[string]int64, len(requests)) // of those who ask for a name alone
	for i, r := range requests {
		index[r.name] = int64(i)
	}
	lost, err := b.query(ctx, onStandby, func(s *statements, trip *pgx.Batch) {
		answers = slices.Repeat([]grant{{busy: true}}, len(requests)) // until told otherwise
		var g struct{ i, token, left int64 }
		var name []byte
		var full, unmarked, shared, had bool
		granted := each([]any{&name, &g.token}, func() { answers[index[string(name)]] = grant{token: uint64(g.token)} })
		told := func() {
			left := time.Duration(g.left) * time.Microsecond
			now := grant{token: uint64(g.token), full: full, shared: shared, left: askIn(left)}
			if g.token == 0 && !full {
				now.busy, now.protected, now.ended = g.left == 0 || unmarked, g.left < 0, had && !shared && g.left <= 0
			}
			if unmarked {
				now.left = min(now.left, slowlyAgain)
			}
			answers[g.i-1] = now
		}
		c := s.columnsOf(requests, nil)
		if shares {
			trip.Queue(s.takeShares, c.callers()[:4]...)
		} else {
			trip.Queue(s.grant, c.callers()...).Query(granted)
			if after := s.columnsOf(requests, func(r request) bool { return r.after }); len(after.names) > 0 {
				trip.Queue(s.take, after.callers()...)
				trip.Queue(s.give, after.callers()...).Query(granted)
			}
		}
		if waiting := s.columnsOf(requests, func(r request) bool { return r.waits }); len(waiting.names) > 0 {
			trip.Queue(s.mark, waiting.names, waiting.owners, shares)
		}
		row := []any{&g.i, &g.token, &full, &g.left, &unmarked, &shared, &had}
		if shares {
			trip.Queue(s.join, c.callers()...).Query(each(row, told))
		} else {
			trip.Queue(s.tell, append(c.callers()[:4], c.after)...).Query(each(row, told))
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
		c := s.columnsOf(requests, nil)
		trip.Queue(s.renew, c.names, c.sharers, c.owners, c.ttls).Query(each([]any{&i, &renewed}, func() {
			fates[i-1] = fate{held: true, busy: !renewed}
		}))
	})
	sent(requests, false)
	b.sweep()
	return fates, err
}

func (b *Backend) sendReleases(ctx context.Context, requests []request) (fates []fate, err error) {
	lost, err := b.query(ctx, untilACrash, func(s *statements, trip *pgx.Batch) {
		fates = make([]fate, len(requests))
		if slices.ContainsFunc(requests, func(r request) bool { return r.ttl > 0 }) {
			trip.Queue(onServerSQL)
		}
		for _, shares := range []bool{false, true} {
			release := s.release
			if shares {
				release = s.leave
			}
			var i int64
			var held bool
			if c := s.columnsOf(requests, func(r request) bool { return (r.sharer != "") == shares }); len(c.names) > 0 {
				trip.Queue(release, c.names, c.owners, c.ttls, c.each).Query(each([]any{&i, &held, nil}, func() {
					fates[i-1].held = held
				}))
			}
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
