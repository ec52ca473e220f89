package cas

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golockers/locker/driver"
)

// This file is the state machine: from a record, what an observer has seen of it, and a request, it
// makes a new record or a refusal. It does no I/O and reads no clock. search_internal_test.go tries
// every interleaving of two clients with a lost reply, and of two writers and an operator, and many
// random ones of four clients.
//
// What can happen in between, and what covers it:
//
//	a Load is answered late: the holder has renewed     a beat counts from after the reply that showed it
//	in between, and the record shown is old             first; the Swap that takes over is under that version
//	two find the name free, or the same holder dead     one Swap wins; the other looks again
//	a renewal meets a takeover                          likewise: the later one finds its owner gone (ErrLost)
//	the reply to a Swap is lost                         a repeated request finds its own owner in the record
//	a Swap arrives after its take-back                  the take-back has written the record: no version comes
//	                                                    back, since every write raises Seq
//	a release, a Break or a renewal arrives twice       the second copy is under an old version
//	a request is made again after a release that keeps  the entry says that it is kept: it is not renewed, nor
//	                                                    granted, nor kept anew
//	a client dies, or stops looking                     its entries no longer change; each of its writes has
//	                                                    what it knew of others (Seen)
//	a record is deleted from outside, and begins anew   owners are random, so no beat is taken for another's
//	an observer's machine sleeps                        its monotonic clock stops: it takes over later

// record is what the store keeps for a name. It is never deleted, so that tokens keep increasing.
type record struct {
	Seq     uint64  `json:"n"` // raised by each write, so that no two are alike
	Last    uint64  `json:"t"` // the highest token granted, or raised to
	Holders []entry `json:"h,omitempty"`
	Notes   []entry `json:"w,omitempty"` // of writers that wait for sharers
}

// entry is a holder, exclusive or shared, or a writer's note. It ends when it has not changed for
// Lasts.
type entry struct {
	Owner  string        `json:"o"`
	Client string        `json:"c,omitempty"` // of a note: the client that wrote it
	Label  string        `json:"l,omitempty"`
	Shared bool          `json:"s,omitempty"`
	Token  uint64        `json:"t,omitempty"`
	Beat   uint64        `json:"b"` // Seq of the write that made or renewed it
	Lasts  time.Duration `json:"d"`
	Seen   time.Duration `json:"a,omitempty"` // how long, at least, it had been unchanged at the last write of the record
	Kept   bool          `json:"k,omitempty"` // released under MinHold: nothing renews it
}

const (
	noteTTL   = 800 * time.Millisecond
	askWithin = 300 * time.Millisecond // renews the note in time, even if a request is slow
	mostNotes = 16                     // each keeps all sharers out, so more would not help
)

func decode(value []byte) (r record, err error) {
	if len(value) == 0 {
		return r, nil
	}
	err = json.Unmarshal(value, &r)
	if err == nil && r.Seq == 0 { // every write of ours has it
		err = errors.New("it has no n")
	}
	if err != nil {
		return r, fmt.Errorf("%w: it is not the record of a lock: %w", driver.ErrRefused, err)
	}
	return r, nil
}

func (r record) encode() []byte {
	value, _ := json.Marshal(r)
	return value
}

func indexOf(all []entry, owner string) int {
	return slices.IndexFunc(all, func(e entry) bool { return e.Owner == owner })
}

// sight is the time since which an observer has seen each beat of a record unchanged, by its own
// monotonic clock.
type sight map[beat]time.Time

type beat struct {
	owner string
	n     uint64
}

func (e entry) beat() beat { return beat{e.Owner, e.Beat} }

// look returns the sight after the observer has received r at now, whose version was age old when the
// store answered. An entry not seen before is as old as the record says.
func (s sight) look(r record, now time.Time, age time.Duration) sight {
	next := make(sight, len(r.Holders)+len(r.Notes))
	for _, all := range [][]entry{r.Holders, r.Notes} {
		for _, e := range all {
			first := now.Add(-age - e.Seen)
			if before, seen := s[e.beat()]; seen && before.Before(first) {
				first = before
			}
			next[e.beat()] = first
		}
	}
	return next
}

// left is how long e still lasts for the observer, unless it is renewed.
func (s sight) left(e entry, now time.Time) time.Duration { return e.Lasts - now.Sub(s[e.beat()]) }

// longest is how long the last of all still lasts.
func (s sight) longest(all []entry, now time.Time) (left time.Duration) {
	for _, e := range all {
		left = max(left, s.left(e, now))
	}
	return left
}

// next is what every write of r starts from: it drops entries that have ended for the observer, except
// owner's if it is not just kept, and records how long the others have been seen unchanged.
func (r record) next(s sight, now time.Time, owner string) record {
	living := func(all []entry) (living []entry) {
		for _, e := range all {
			if e.Owner == owner && !e.Kept || s.left(e, now) > 0 {
				e.Seen = max(e.Seen, now.Sub(s[e.beat()]))
				living = append(living, e)
			}
		}
		return living
	}
	return record{r.Seq + 1, r.Last, living(r.Holders), living(r.Notes)}
}

// want is what a request asks for.
type want struct {
	entry
	waits bool
	ages  bool // the store knows the age of a note
}

// verdict is the answer to a want.
type verdict struct {
	granted bool
	token   uint64
	left    time.Duration // refused: how long the entries in the way last
	note    string        // refused: the owner of its note
	full    int           // refused: the number of sharers, as many as possible
}

// acquire decides on w. If write is true, next must be written, and the verdict is valid only if it
// was.
func (r record) acquire(w want, s sight, now time.Time) (next record, v verdict, write bool) {
	next = r.next(s, now, w.Owner)
	w.Beat = next.Seq
	if i := indexOf(next.Holders, w.Owner); i >= 0 { // it asks again (R11)
		e := &next.Holders[i]
		if e.Shared != w.Shared || e.Kept {
			return r, verdict{left: s.longest(next.Holders, now)}, false
		}
		e.Beat, e.Lasts, e.Seen = w.Beat, w.Lasts, 0
		return next, verdict{granted: true, token: e.Token}, true
	}
	w.Token = r.Last + 1
	held := len(next.Holders) > 0
	switch {
	case held && !(w.Shared && next.Holders[0].Shared):
		v.left = s.longest(next.Holders, now)
		if w.waits && !w.Shared && next.Holders[0].Shared {
			v.note, write = next.note(w, s, now)
		}
		return next, v, write
	case (held || w.ages) && w.Shared && len(next.Notes) > 0: // or a dead writer's note would keep others from a free name
		return r, verdict{left: s.longest(next.Notes, now)}, false
	case held && len(next.Holders) >= driver.MaxSharers:
		return r, verdict{full: len(next.Holders)}, false
	case held:
		w.Token = next.Holders[0].Token // the same generation
	case !w.Shared:
		next.Notes = nil
	}
	w.Client = ""
	next.Last = max(next.Last, w.Token)
	next.Holders = append(next.Holders, w.entry)
	return next, verdict{granted: true, token: w.Token}, true
}

// note adds a note for w unless its client's note is fresh, and returns the owner of the client's note.
func (r *record) note(w want, s sight, now time.Time) (owner string, write bool) {
	i := slices.IndexFunc(r.Notes, func(e entry) bool { return e.Client == w.Client })
	switch {
	case i >= 0 && s.left(r.Notes[i], now) > noteTTL-askWithin/2:
		return r.Notes[i].Owner, false
	case i < 0 && len(r.Notes) >= mostNotes:
		return "", false
	case i >= 0:
		r.Notes = slices.Delete(r.Notes, i, i+1)
	}
	r.Notes = append(r.Notes, entry{Owner: w.Owner, Client: w.Client, Beat: r.Seq, Lasts: noteTTL})
	return w.Owner, true
}

// renew makes owner last for lasts from now on.
func (r record) renew(owner string, lasts time.Duration, s sight, now time.Time) (next record, ok bool) {
	next = r.next(s, now, owner)
	i := indexOf(next.Holders, owner)
	if i < 0 || next.Holders[i].Kept {
		return r, false
	}
	e := &next.Holders[i]
	e.Beat, e.Lasts, e.Seen = next.Seq, lasts, 0
	return next, true
}

// keep marks owner as kept for lasts from now on, unless it is already kept. It reports whether owner
// was there.
func (r record) keep(owner string, lasts time.Duration, s sight, now time.Time) (next record, was bool) {
	next = r.next(s, now, owner)
	i := indexOf(next.Holders, owner)
	if i >= 0 && !next.Holders[i].Kept {
		e := &next.Holders[i]
		e.Beat, e.Lasts, e.Seen, e.Kept = next.Seq, lasts, 0, true
	}
	return next, i >= 0
}

// remove removes the holders and notes for which gone is true. It reports whether there was one.
func (r record) remove(gone func(entry) bool, s sight, now time.Time) (next record, was bool) {
	was = slices.ContainsFunc(r.Holders, gone) || slices.ContainsFunc(r.Notes, gone)
	next = r.next(s, now, "")
	next.Holders, next.Notes = slices.DeleteFunc(next.Holders, gone), slices.DeleteFunc(next.Notes, gone)
	return next, was
}

// raise makes all later tokens greater than token.
func (r record) raise(owner string, token uint64, s sight, now time.Time) (next record, ok bool) {
	next = r.next(s, now, owner)
	next.Last = max(next.Last, token)
	i := indexOf(next.Holders, owner)
	return next, i >= 0 && !next.Holders[i].Kept
}

// state returns what the observer knows.
func (r record) state(name string, s sight, now time.Time) driver.State {
	st := driver.State{Name: name, Waiters: -1}
	for _, e := range r.next(s, now, "").Holders {
		if !st.Held {
			st.Held, st.Holder, st.Label, st.Token = true, e.holder(), e.Label, e.Token
		}
		st.Remaining = max(st.Remaining, s.left(e, now))
		if e.Shared {
			if st.Sharers++; len(st.Sharing) < 16 && !slices.Contains(st.Sharing, e.Label) {
				st.Sharing = append(st.Sharing, e.Label)
			}
		}
	}
	return st
}

// holder is the State.Holder of an entry. Sharers of one generation have the same.
func (e entry) holder() string {
	if e.Shared {
		return fmt.Sprint("cas sharers ", e.Token)
	}
	return "cas " + e.Owner
}
