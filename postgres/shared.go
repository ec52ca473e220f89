package postgres

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/golockers/locker/driver"
)

// askForSharers is when a writer that waits for sharers asks again, and so renews its note, which lasts for a
// second.
const askForSharers = 300 * time.Millisecond

// noBitmapSQL comes before what reads all entries of a name. A bitmap scan would not mark those of the index
// as dead that belong to sharers who have left, and each request would read them until the next vacuum.
const noBitmapSQL = `SELECT set_config('enable_bitmapscan', 'off', true)`

// entry is the name of a sharer's own row.
func (r request) entry() string { return "\xff" + r.name + "\xff" + r.owner }

func entriesOf(requests []request) [][]byte {
	entries := make([][]byte, len(requests))
	for i, a := range requests {
		entries[i] = []byte(a.entry())
	}
	return entries
}

// distinct has one request for each name, in their order. It waits if one for that name does.
func distinct(requests []request) (all []request) {
	index := make(map[string]int, len(requests))
	for _, a := range requests {
		i, here := index[a.name]
		if !here {
			i = len(all)
			index[a.name] = i
			all = append(all, request{name: a.name})
		}
		all[i].waits = all[i].waits || a.waits
	}
	slices.SortFunc(all, func(a, b request) int { return strings.Compare(a.name, b.name) })
	return all
}

// sendJoins asks for sharers, of whom several may ask for one name.
func (b *Backend) sendJoins(ctx context.Context, requests []request) ([]grant, error) {
	names, _ := namesOf(requests)
	entries := entriesOf(requests)
	labels, ttls := make([][]byte, len(requests)), make([]int64, len(requests))
	for i, a := range requests {
		labels[i], ttls[i] = []byte(a.label), a.ttl.Microseconds()
	}
	asked := distinct(requests)
	rows, _ := namesOf(asked)
	waits, owners, nobody := make([]bool, len(asked)), make([]string, len(asked)), make([]string, len(asked))
	for i, a := range asked {
		waits[i], owners[i] = a.waits, sharersOwner
		nobody[i] = "-" // what is told of all rows: a note may keep out who shares one
	}
	var answers []grant
	var notes []time.Duration
	var left map[string]time.Duration
	lost, err := b.query(ctx, onStandby, func(s *statements, trip *pgx.Batch) {
		answers, notes = make([]grant, len(requests)), make([]time.Duration, len(requests))
		left = make(map[string]time.Duration, len(asked))
		var i, token, value int64
		var full bool
		var name []byte
		trip.Queue(noBitmapSQL)
		trip.Queue(s.make, rows)
		trip.Queue(s.join, names, entries, labels, ttls, s.keysOf(requests)).
			Query(each([]any{&i, &token, &value, &full}, func() {
				answers[i-1] = grant{token: uint64(token), full: full}
				notes[i-1] = time.Duration(value) * time.Microsecond
			}))
		var waited [][]byte
		for i, name := range rows {
			if waits[i] {
				waited = append(waited, name)
			}
		}
		if len(waited) > 0 {
			trip.Queue(s.mark, waited, owners[:len(waited)])
		}
		trip.Queue(s.tell, rows, nobody, waits, s.keysOf(asked)).Query(each([]any{&name, &value, nil}, func() {
			left[string(name)] = askIn(time.Duration(value) * time.Microsecond)
		}))
	})
	granted(requests, answers, lost, err)
	for i := range answers {
		answers[i].left = max(left[requests[i].name], askAgain)
		if notes[i] > 0 {
			answers[i].left = min(answers[i].left, notes[i])
		}
	}
	b.sweep()
	return answers, err
}

func (b *Backend) sendSharedRenewals(ctx context.Context, requests []request) ([]renewal, error) {
	defer renewed(requests)
	names, _ := namesOf(requests)
	return b.renew(ctx, requests, func(s *statements, trip *pgx.Batch, ttls []int64) *pgx.QueuedQuery {
		return trip.Queue(s.renewShared, names, entriesOf(requests), ttls)
	})
}

func (b *Backend) sendLeaves(ctx context.Context, requests []request) ([]end, error) {
	names, _ := namesOf(requests)
	return b.end(ctx, requests, func(s *statements, trip *pgx.Batch) *pgx.QueuedQuery {
		trip.Queue(noBitmapSQL)
		trip.Queue(s.lock, names)
		return trip.Queue(s.leave, names, entriesOf(requests))
	})
}

// waitForSharers leaves the note of a writer that waits for sharers and was refused. That costs a round trip
// more, which nobody pays whose lock is free. A note that did not get there costs the writer's turn at most.
func (b *Backend) waitForSharers(ctx context.Context, req driver.Request, left time.Duration) *driver.Refusal {
	noted, err := b.notes.Do(ctx, request{name: req.Name, owner: req.Owner})
	if err == nil && !noted.Value {
		return &driver.Refusal{Remaining: askAgain} // the sharers have just left
	}
	return &driver.Refusal{Remaining: left, AskWithin: askForSharers, Leave: func(ctx context.Context) error {
		bounded, cancel := context.WithTimeout(ctx, b.opts.Timeout)
		defer cancel()
		defer context.AfterFunc(b.life, cancel)()
		_, err := b.query(bounded, untilACrash, func(s *statements, trip *pgx.Batch) {
			trip.Queue(s.unnote, []byte(req.Name), []byte(req.Owner))
		})
		if err != nil {
			return b.failure(ctx, err)
		}
		return nil
	}}
}

// sendNotes leaves many in one round trip: one each would take the pool's connections from the renewals.
func (b *Backend) sendNotes(ctx context.Context, requests []request) (noted []bool, err error) {
	names, _ := namesOf(requests)
	writers, index := make([][]byte, len(requests)), make(map[string]int, len(requests))
	for i, a := range requests {
		writers[i], index[a.name] = []byte(a.owner), i
	}
	_, err = b.query(ctx, untilACrash, func(s *statements, trip *pgx.Batch) {
		noted = make([]bool, len(requests))
		var name []byte
		trip.Queue(s.note, names, writers).Query(each([]any{&name}, func() { noted[index[string(name)]] = true }))
	})
	return noted, err
}
