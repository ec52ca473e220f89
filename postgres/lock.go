package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/batch"
	"github.com/golockers/locker/internal/sqlstate"
)

// Acquire implements [driver.Backend]. A request whose outcome is not known may still arrive; what it
// then leaves ends with its TTL, or its MinHold.
func (b *Backend) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	h := &hold{b: b, kind: &b.exclusive, name: req.Name, owner: req.Owner, ttl: req.TTL}
	if req.Shared {
		h.kind = &b.sharing
	}
	lasts := max(req.TTL, req.MinHold)
	h.undo.Sends(lasts)
	answer, err := h.kind.acquires.Do(ctx, request{
		name: req.Name, owner: req.Owner, label: req.Label, ttl: lasts, waits: req.Wait, hold: h,
	})
	g := answer.Value
	if !answer.Sent {
		h.undo.Sent(false)
	}
	var left driver.Grant // what may be there beside an error or a refusal
	if g.lost > 0 || err != nil && answer.Sent && unknown(err) {
		left.Hold = h
	}
	switch {
	case err != nil:
		return left, b.failure(ctx, err)
	case g.full:
		return left, fmt.Errorf("postgres %s: %w: %d share %q, and no more can",
			b.addr, driver.ErrRefused, driver.MaxSharers, req.Name)
	case g.token == 0 && g.sharers && req.Wait && !req.Shared:
		left.Refused = b.waitForSharers(ctx, req, g.left)
	case g.token == 0:
		left.Refused = &driver.Refusal{Remaining: g.left}
	}
	if left.Refused != nil {
		if left.Hold != nil {
			left.Refused.Undo, left.Hold = h.Undo, nil
		}
		return left, nil
	}
	validity := driver.Validity{Since: answer.Since, TTL: req.TTL}
	return driver.Grant{Hold: h, Validity: validity, Token: g.token}, nil
}

// request is what one caller asks for.
type request struct {
	name, owner, label string
	ttl                time.Duration
	waits              bool
	hold               *hold // to be told when a request that was sent is not sent any more; nil: nobody
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
	renewals *batch.Batcher[request, renewal]
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
	lost    int  // so many copies of the request were lost, which may yet be granted (R7)
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
	told := make([]bool, len(requests))
	lost, err := b.query(ctx, onStandby, func(s *statements, trip *pgx.Batch) {
		answers = make([]grant, len(requests))
		clear(told)
		keys := s.keysOf(requests)
		var name []byte
		var value int64
		var sharers bool
		trip.Queue(s.acquire, names, owners, labels, ttls, keys).Query(each([]any{&name, &value}, func() {
			i := index[string(name)]
			answers[i].token, told[i] = uint64(value), true
		}))
		if len(waited) > 0 {
			trip.Queue(s.mark, waited, waiters)
		}
		trip.Queue(s.tell, names, owners, waits, keys).Query(each([]any{&name, &value, &sharers}, func() {
			i := index[string(name)]
			answers[i].left, answers[i].sharers = askIn(time.Duration(value)*time.Microsecond), sharers
			told[i] = true
		}))
	})
	granted(requests, answers, lost, err)
	if err == nil {
		for i, a := range requests {
			if !a.waits {
				continue
			}
			if since := b.unmarked(a.name, !told[i]); !told[i] {
				answers[i].left = askIn(-since)
			}
		}
	}
	b.sweep()
	return answers, err
}

// granted notes what has become of requests for locks, of which so many copies were lost. They are not sent any
// more; whoever asked may have left before.
func granted(requests []request, answers []grant, lost int, err error) {
	unknown := err != nil && unknown(err)
	for i, a := range requests {
		if i < len(answers) {
			answers[i].lost = lost
		}
		a.hold.undo.Sent(lost > 0 || unknown)
	}
}

// unmarked returns for how long a name has been held by somebody whose row a waiter cannot mark, since a
// transaction has locked it. Names that nobody asks for any more are forgotten.
func (b *Backend) unmarked(name string, locked bool) time.Duration {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	since, there := b.locked[name]
	switch {
	case !locked:
		delete(b.locked, name)
	case !there:
		maps.DeleteFunc(b.locked, func(_ string, since time.Time) bool {
			return len(b.locked) >= maxLocked && now.Sub(since) > sweepEvery
		})
		b.locked[name] = now
		return 0
	}
	return now.Sub(since)
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
	undo        driver.Undo
	b           *Backend
	kind        *kind
	name, owner string
	ttl         time.Duration
}

// renewal is the answer to a request to renew.
type renewal int

const (
	gone renewal = iota
	busy         // it is there, and somebody else's transaction has locked its row
	kept
)

var errRowLocked = errors.New("a transaction has locked the lock's row, and does not end")

// Renew implements [driver.Hold].
func (h *hold) Renew(ctx context.Context) (driver.Validity, error) {
	r := request{name: h.name, owner: h.owner, ttl: h.ttl, hold: h}
	h.undo.Sends(h.ttl)
	answer, err := h.kind.renewals.Do(ctx, r)
	if !answer.Sent {
		h.undo.Sent(false)
	} else if err == nil && answer.Value == busy {
		answer, err = h.renewInTurn(ctx, r)
	}
	switch {
	case err != nil:
		return driver.Validity{}, h.b.failure(ctx, err)
	case answer.Value == gone:
		return driver.Validity{}, h.lost()
	}
	return driver.Validity{Since: answer.Since, TTL: h.ttl}, nil
}

// renewInTurn renews a lock whose row is locked: alone, and in the queue for the row, since a busy one goes from
// one transaction to the next and is never found free. It stands there for a quarter of a second at a time, so that
// rows that stay locked do not keep the few connections that there are for this.
func (h *hold) renewInTurn(ctx context.Context, r request) (answer batch.Answer[renewal], err error) {
	h.undo.Sends(h.ttl)
	defer h.undo.Sent(false)
	bounded, cancel := context.WithTimeoutCause(ctx, h.b.opts.Timeout, errRowLocked)
	defer cancel()
	names, owners := namesOf([]request{r})
	for {
		select {
		case h.b.turns <- struct{}{}:
		case <-bounded.Done():
			return answer, context.Cause(bounded)
		}
		answer.Since = time.Now()
		all, err := h.b.renew(bounded, []request{r}, func(s *statements, trip *pgx.Batch, ttls []int64) *pgx.QueuedQuery {
			trip.Queue("SELECT set_config('lock_timeout', '250ms', true)")
			trip.Queue(s.lock, names)
			if h.kind == &h.b.sharing {
				return trip.Queue(s.renewShared, names, entriesOf([]request{r}), ttls)
			}
			return trip.Queue(s.renew, names, owners, ttls)
		})
		<-h.b.turns
		switch {
		case err != nil && bounded.Err() != nil:
			return answer, context.Cause(bounded)
		case err != nil && sqlstate.Of(err) != sqlstate.NoLock:
			return answer, err
		case err == nil && all[0] != busy:
			answer.Value = all[0]
			return answer, nil
		}
	}
}

func (b *Backend) sendRenewals(ctx context.Context, requests []request) ([]renewal, error) {
	defer renewed(requests)
	names, owners := namesOf(requests)
	return b.renew(ctx, requests, func(s *statements, trip *pgx.Batch, ttls []int64) *pgx.QueuedQuery {
		return trip.Queue(s.renew, names, owners, ttls)
	})
}

// renewed notes that renewals are not sent any more; whoever asked may have left before.
func renewed(requests []request) {
	for _, a := range requests {
		a.hold.undo.Sent(false)
	}
}

// renew sends a statement that says which of the requests are there, and whether they were renewed.
func (b *Backend) renew(
	ctx context.Context, requests []request, send func(*statements, *pgx.Batch, []int64) *pgx.QueuedQuery,
) (answers []renewal, err error) {
	ttls := make([]int64, len(requests))
	for i, a := range requests {
		ttls[i] = a.ttl.Microseconds()
	}
	_, err = b.query(ctx, withLeases, func(s *statements, trip *pgx.Batch) {
		answers = make([]renewal, len(requests))
		var i int64
		var renewed bool
		send(s, trip, ttls).Query(each([]any{&i, &renewed}, func() {
			answers[i-1] = busy
			if renewed {
				answers[i-1] = kept
			}
		}))
	})
	b.sweep()
	return answers, err
}

// Release implements [driver.Hold].
func (h *hold) Release(ctx context.Context) error {
	answer, err := h.kind.releases.Do(ctx, request{name: h.name, owner: h.owner})
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
func (h *hold) Undo(ctx context.Context) error { return h.undo.Undo(ctx, h.Release) }

// errLostRelease is why it is not known whether a release was in time.
var errLostRelease = errors.New("the connection was lost, and it is not known " +
	"whether the lock was held until then")

// end is the answer to a release: whether the lock was held, and how many copies of it were lost.
type end struct {
	held bool
	lost int
}

func (b *Backend) sendReleases(ctx context.Context, requests []request) ([]end, error) {
	names, owners := namesOf(requests)
	return b.end(ctx, requests, func(s *statements, trip *pgx.Batch) *pgx.QueuedQuery {
		return trip.Queue(s.release, names, owners)
	})
}

// end sends a statement that says which of the requests were held.
func (b *Backend) end(
	ctx context.Context, requests []request, send func(*statements, *pgx.Batch) *pgx.QueuedQuery,
) (ends []end, err error) {
	lost, err := b.query(ctx, untilACrash, func(s *statements, trip *pgx.Batch) {
		ends = make([]end, len(requests))
		var i int64
		var held bool
		send(s, trip).Query(each([]any{&i, &held, nil}, func() { ends[i-1].held = held }))
	})
	for i := range ends {
		ends[i].lost = lost
	}
	return ends, err
}

func (h *hold) lost() error {
	return fmt.Errorf("postgres %s: its row is not the holder's any more, or has expired: %w",
		h.b.addr, driver.ErrLost)
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
