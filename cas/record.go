package cas

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golockers/locker/driver"
)

// This file is the machine: a record, what an observer has seen of it, and a request make a new record
// or a refusal. It does no I/O and reads no clock. search_internal_test.go tries every interleaving of two clients with
// a lost reply, and of two writers and an operator; of four clients, many by chance.
//
// What can come between, and what covers it:
//
//	a Load is answered late: the holder has renewed     a beat counts from after the reply that showed it
//	in between, and the record shown is old             first; the Swap that takes over is under that version
//	two find the name free, or the same holder dead     one Swap wins; the other looks again
//	a renewal meets a takeover                          likewise: the later one finds its owner gone (ErrLost)
//	the reply to a Swap is lost                         the record tells: who asks again finds its own owner
//	a Swap arrives after its take-back                  the take-back has written the record: no version comes
//	                                                    back, since every write raises Seq
//	a release, a Break or a renewal arrives twice       the second copy is under an old version
//	a client dies, or stops looking                     nothing of it changes any more; what it knew of others
//	                                                    is in each write of it (Seen)
//	a record is deleted from outside, and begins anew   an owner is random, so no beat is taken for another's
//	an observer's machine sleeps                        its monotonic clock stands: it takes over later

// record is what the store keeps of a name. It is never deleted, so that tokens rise.
type record struct {
	Seq     uint64  `json:"n"` // raised by each write, so that no two are alike
	Last    uint64  `json:"t"` // the highest token that was given out, or raised to
	Holders []entry `json:"h,omitempty"`
	Notes   []entry `json:"w,omitempty"` // of writers that wait for sharers
}

// entry is a holder, alone or shared, or the note of a writer. It is over when it has not changed for
// Lasts.
type entry struct {
	Owner  string        `json:"o"`
	Client string        `json:"c,omitempty"` // of a note: whose it is
	Label  string        `json:"l,omitempty"`
	Shared bool          `json:"s,omitempty"`
	Token  uint64        `json:"t,omitempty"`
	Beat   uint64        `json:"b"` // Seq of the write that made or renewed it
	Lasts  time.Duration `json:"d"`
	Seen   time.Duration `json:"a,omitempty"` // for how long it had been unchanged, at least, at the last write of the record
}

const (
	noteTTL   = 800 * time.Millisecond
	askWithin = 300 * time.Millisecond // in time for its note, even if one request takes long
	mostNotes = 16                     // each keeps all sharers out, so more of them buy nothing
)

func decode(value []byte) (r record, err error) {
	if len(value) == 0 {
		return r, nil
	}
	err = json.Unmarshal(value, &r)
	if err == nil && r.Seq == 0 { // what each write of ours has
		err = errors.New("it has no n")
	}
	if err != nil {
		return r, fmt.Errorf("%w: there is something else than the record of a lock: %w", driver.ErrRefused, err)
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

// sight is since when an observer has seen each beat of a record unchanged, by its own monotonic clock.
type sight map[beat]time.Time

type beat struct {
	owner string
	n     uint64
}

func (e entry) beat() beat { return beat{e.Owner, e.Beat} }

// look returns what the observer has seen when, at now, it has got r, whose version was age old when the
// store answered. What it has not seen before is as old as the record tells.
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

// left is how long e lasts for the observer, unless it is renewed.
func (s sight) left(e entry, now time.Time) time.Duration { return e.Lasts - now.Sub(s[e.beat()]) }

// longest is how long the last of them lasts.
func (s sight) longest(all []entry, now time.Time) (left time.Duration) {
	for _, e := range all {
		left = max(left, s.left(e, now))
	}
	return left
}

// next is what a write of r begins with: what is over for the observer is gone, but not owner, which nobody
// has removed, and of the others it says for how long they have been seen.
func (r record) next(s sight, now time.Time, owner string) record {
	living := func(all []entry) (living []entry) {
		for _, e := range all {
			if e.Owner == owner || s.left(e, now) > 0 {
				e.Seen = max(e.Seen, now.Sub(s[e.beat()]))
				living = append(living, e)
			}
		}
		return living
	}
	return record{r.Seq + 1, r.Last, living(r.Holders), living(r.Notes)}
}

// want is what a request wants.
type want struct {
	entry
	waits bool
	ages  bool // the store knows the age of a note
}

// verdict is the answer to a want.
type verdict struct {
	granted bool
	token   uint64
	left    time.Duration // refused: how long what is in the way lasts
	note    string        // refused: the owner of its note
	full    int           // refused: so many share the name
}

// acquire decides about w. If write is true, next has to be written, and the verdict counts if it was.
func (r record) acquire(w want, s sight, now time.Time) (next record, v verdict, write bool) {
	next = r.next(s, now, w.Owner)
	w.Beat = next.Seq
	if i := indexOf(next.Holders, w.Owner); i >= 0 { // it asks again (R11)
		e := &next.Holders[i]
		if e.Shared != w.Shared {
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
	case (held || w.ages) && w.Shared && len(next.Notes) > 0: // else a dead writer's keeps others from a free name
		return r, verdict{left: s.longest(next.Notes, now)}, false
	case held && len(next.Holders) >= driver.MaxSharers:
		return r, verdict{full: len(next.Holders)}, false
	case held:
		w.Token = next.Holders[0].Token // of their generation
	case !w.Shared:
		next.Notes = nil
	}
	w.Client = ""
	next.Last = max(next.Last, w.Token)
	next.Holders = append(next.Holders, w.entry)
	return next, verdict{granted: true, token: w.Token}, true
}

// note leaves the note of w, if that of its client is not fresh, and returns its owner.
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

// renew lets owner last for so long from now on.
func (r record) renew(owner string, lasts time.Duration, s sight, now time.Time) (next record, ok bool) {
	next = r.next(s, now, owner)
	i := indexOf(next.Holders, owner)
	if i < 0 {
		return r, false
	}
	e := &next.Holders[i]
	e.Beat, e.Lasts, e.Seen = next.Seq, lasts, 0
	return next, true
}

// remove removes who is gone, with the notes of theirs. It reports whether there was one.
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
	return next, indexOf(next.Holders, owner) >= 0
}

// state tells what the observer knows.
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

// holder is the State.Holder of an entry, which sharers of a generation have in common.
func (e entry) holder() string {
	if e.Shared {
		return fmt.Sprint("cas sharers ", e.Token)
	}
	return "cas " + e.Owner
}
