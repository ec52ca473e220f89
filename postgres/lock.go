package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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
	r.label, r.minHold = req.Label, req.MinHold
	r.waits = req.Wait && b.refused.lately(req.Name)
	lost, unsure := 0, false  // copies that may yet be granted (R7)
	var protected time.Time   // since when a transaction that seems to have called Held is in the way
	var known *driver.Refusal // what an answer said, should the caller's time be over before the next
	ask := func() (batch.Answer[grant], bool, error) {
		answer, err := do(ctx, acquires, r)
		g := answer.Value
		lost += g.lost
		unsure = err != nil && answer.Sent && unknown(err)
		if g.busy && g.free() || g.protected || g.ended {
			known = nil
		}
		switch {
		case !g.protected:
			protected = time.Time{}
		case protected.IsZero():
			protected = time.Now()
		}
		return answer, g.busy || g.protected && time.Since(protected) < protectedFor, err
	}
	refuse := func(g grant) *driver.Refusal {
		if req.Wait {
			b.refused.note(req.Name)
		}
		refusal := &driver.Refusal{Remaining: g.left}
		if g.shared && req.Wait && !req.Shared {
			refusal.AskWithin, refusal.Leave = askForSharers, h.unmark
		}
		return refusal
	}
	most := busyFor
	if req.Shared {
		most = b.opts.Timeout
	}
	answer, err := insist(ctx, most, func() (batch.Answer[grant], bool, error) {
		answer, again, err := ask()
		g := answer.Value
		after := g.ended && !req.Shared
		if err == nil && g.token == 0 && !g.full && (req.Wait && !r.waits || after && !r.after) {
			// In the first request, the mark would cost a caller that finds the lock free a fifth of its time.
			r.waits, r.after = req.Wait, r.after || after
			if !g.busy && !g.protected && !g.ended {
				known = refuse(g)
			}
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
		left.Refused = known
		return left, b.failure(ctx, err)
	case g.full:
		return left, fmt.Errorf("postgres %s: %w: %d share %q, and no more can",
			b.addr, driver.ErrRefused, driver.MaxSharers, req.Name)
	case g.free() && req.Shared:
		return left, b.failure(ctx, errLetsIn)
	case g.token == 0:
		left.Refused = refuse(g)
		if left.Hold != nil {
			left.Refused.Undo, left.Hold = h.Undo, nil
		}
		return left, nil
	}
	validity := driver.Validity{Since: answer.Since, TTL: req.TTL}
	return driver.Grant{Hold: h, Validity: validity, Token: g.token}, nil
}

// names are those that a caller who waits was refused lately: the next request for one of them marks its row at once,
// and not only once it has been refused too. So the note of a writer that waits for sharers is renewed in time from
// twice as far away, and those who poll ask once.
type names struct {
	mu sync.Mutex
	at map[string]time.Time
}

const (
	refusedFor = 15 * time.Second // a little longer than the pause between two polls, unless ten thousand wait
	mostNames  = 1024
)

func (n *names) note(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.at[name]; n.at == nil || !known && len(n.at) >= mostNames {
		n.at = map[string]time.Time{}
	}
	n.at[name] = time.Now()
}

func (n *names) lately(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	at, ok := n.at[name]
	if ok && time.Since(at) > refusedFor {
		delete(n.at, name)
		return false
	}
	return ok
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
	waits                      bool          // its row is to be marked for it
	after                      bool          // sharers had it last; never of a sharer, which takes its latch each time
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

// column is what one argument of a statement, an array, has for each of the requests.
func column[T any](requests []request, of func(r request) T) []T {
	all := make([]T, len(requests))
	for i, r := range requests {
		all[i] = of(r)
	}
	return all
}

func nameOf(r request) []byte   { return []byte(r.name) }
func ownerOf(r request) string  { return r.owner }
func sharerOf(r request) string { return r.sharer }
func ttlOf(r request) int64     { return r.ttl.Microseconds() }
func waitsOf(r request) bool    { return r.waits }
func afterOf(r request) bool    { return r.after }

// askers are the arguments of what takes latches, and callers those of what grants.
func (s *statements) askers(requests []request) []any {
	return []any{column(requests, nameOf), column(requests, ownerOf), column(requests, s.keyOf), column(requests, waitsOf)}
}

func (s *statements) callers(requests []request) []any {
	return append(s.askers(requests), column(requests, func(r request) []byte { return []byte(r.label) }),
		column(requests, ttlOf), column(requests, func(r request) int64 { return r.minHold.Microseconds() }))
}

func (s *statements) keyOf(r request) int64 { return s.key(r.name) }

// only returns the requests that are meant.
func only(requests []request, meant func(r request) bool) []request {
	return slices.DeleteFunc(slices.Clone(requests), func(r request) bool { return !meant(r) })
}

// indexOf says where the request with a key is.
func indexOf(requests []request) map[string]int {
	index := make(map[string]int, len(requests))
	for i, r := range requests {
		index[r.key()] = i
	}
	return index
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
func (b *Backend) acquire(ctx context.Context, requests []request) (answers []grant, err error) {
	index, shares := indexOf(requests), requests[0].sharer != ""
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
		askers, callers := s.askers(requests), s.callers(requests)
		if shares {
			trip.Queue(s.takeShares, askers...)
		} else {
			trip.Queue(s.grant, callers...).Query(granted)
		}
		if after := only(requests, afterOf); len(after) > 0 {
			trip.Queue(s.take, column(after, nameOf), column(after, s.keyOf))
			trip.Queue(s.close, column(after, nameOf))
			trip.Queue(s.grant, s.callers(after)...).Query(granted)
		}
		if waiting := only(requests, waitsOf); len(waiting) > 0 {
			trip.Queue(s.mark, column(waiting, nameOf), column(waiting, ownerOf), shares)
		}
		row := []any{&g.i, &g.token, &full, &g.left, &unmarked, &shared, &had}
		if shares {
			trip.Queue(s.join, callers...).Query(each(row, told))
		} else {
			trip.Queue(s.tell, append(askers, column(requests, afterOf))...).Query(each(row, told))
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
	answer, err := do(ctx, h.b.releases[r.release()], r)
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

// release is what a release does. Each kind has transactions of its own, so that none waits for the row of a lock, or
// for a sharer's entry, while it has the other: a grant wants rows first.
type release int

const (
	frees  release = iota // the row
	keeps                 // the row
	leaves                // a sharer's entry
	stays                 // a sharer's entry, which is kept
	kinds                 // how many there are
)

func (r request) release() release {
	kind := frees
	if r.sharer != "" {
		kind = leaves
	}
	if r.ttl > 0 {
		kind++
	}
	return kind
}

// sendReleases is for requests of one kind.
func (b *Backend) sendReleases(ctx context.Context, requests []request) (fates []fate, err error) {
	index := indexOf(requests)
	lost, err := b.query(ctx, untilACrash, func(s *statements, trip *pgx.Batch) {
		fates = make([]fate, len(requests))
		names, owners := column(requests, nameOf), column(requests, ownerOf)
		var q *pgx.QueuedQuery
		switch requests[0].release() {
		case frees:
			q = trip.Queue(s.release, names, owners)
		case leaves:
			q = trip.Queue(s.leave, names, owners)
		default:
			trip.Queue(onServerSQL)
			q = trip.Queue(s.keep, names, column(requests, sharerOf), owners, column(requests, ttlOf))
		}
		var name []byte
		var sharer string
		var held bool
		q.Query(each([]any{&name, &sharer, &held, nil}, func() {
			fates[index[request{name: string(name), sharer: sharer}.key()]].held = held
		}))
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
