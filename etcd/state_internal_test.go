package etcd

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Each row is what happens to an attempt, and what has to be done about it then.
func TestTraceOfAnAttempt(t *testing.T) {
	failed := errors.New("failed")
	put := func(f fate, err error) func(*trace) { return func(tr *trace) { tr.sent(f, err) } }
	found := func(tr *trace) { tr.found(7) }
	lost := func(tr *trace) { tr.missing() }
	floored := func(tr *trace) { tr.floors = true }
	steps := func(all ...func(*trace)) []func(*trace) { return all }
	refused, copied := put(fate{}, failed), put(fate{underWay: true}, nil)
	asFailed, gaveUp := put(fate{carriedOut: true}, failed), put(fate{underWay: true}, failed)
	for _, c := range []struct {
		what           string
		steps          []func(*trace)
		left, leftGone bool // has it to be taken back, with the lease there or gone?
		void           bool // the deletion needs a void key
	}{
		{"nothing was sent", steps(), false, false, false},
		{"it was refused", steps(refused), false, false, false},
		{"no answer came", steps(put(fate{underWay: true, carriedOut: true}, failed)), true, false, true},
		{"it was answered as if it had failed", steps(asFailed), true, false, false},
		{"a copy is under way, the other refused", steps(gaveUp, refused), true, false, true},
		{"it is queued", steps(found), true, false, false},
		{"it is queued, a copy is under way", steps(copied, found), true, false, true},
		{"its place was lost", steps(found, lost), false, false, false},
		{"its place was lost, floors may be left", steps(found, floored, lost), true, true, false},
		{"its place was lost, a copy may come", steps(copied, found, lost), true, false, true},
		{"it was granted", steps(found, func(tr *trace) { tr.stage = granted }), true, false, false},
		{"it was granted, with floors", steps(found, floored, func(tr *trace) { tr.stage = granted }), true, true, false},
		{"it is kept", steps(found, floored, func(tr *trace) { tr.stage = kept }), true, true, false},
	} {
		var tr trace
		for _, step := range c.steps {
			step(&tr)
		}
		assert.Equal(t, c.left, tr.left(false), c.what)
		assert.Equal(t, c.leftGone, tr.left(true), c.what)
		needed, void := tr.removal(false)
		assert.True(t, needed, c.what)
		assert.Equal(t, c.void, void, c.what)
		needed, void = tr.removal(true)
		assert.Equal(t, tr.floors, needed, "%s: floors stay when the lease goes", c.what)
		assert.False(t, void, "%s: nothing is put under a lease that is gone", c.what)
		tr.stage = settled
		needed, _ = tr.removal(false)
		assert.False(t, needed, "%s: only once", c.what)
		assert.False(t, tr.left(false), "%s: it was removed", c.what)
	}
}

// A release that got no answer, and is made again, finds nothing: it was there all the same. Of a lock that
// is kept, the floor is there.
func TestTraceOfARelease(t *testing.T) {
	lost, failed := fate{carriedOut: true, underWay: true}, errors.New("no answer")
	type step struct {
		f                fate
		err              error
		keep, key, floor bool
	}
	for i, c := range []struct {
		steps []step
		want  bool // of the last one
	}{
		{[]step{{key: true}}, true},
		{[]step{{}}, false},
		{[]step{{f: lost}}, true}, // answered by a copy
		{[]step{{f: lost, err: failed}}, false},
		{[]step{{f: lost, err: failed}, {}}, true},
		{[]step{{err: failed}, {}}, false},
		{[]step{{keep: true, key: true}}, true},
		{[]step{{keep: true, floor: true}}, false}, // the session has ended
		{[]step{{f: lost, err: failed, keep: true}, {keep: true, floor: true}}, true},
		{[]step{{f: lost, err: failed, keep: true}, {keep: true}}, false}, // the key was deleted meanwhile, or MinHold is over
		{[]step{{keep: true, key: true}, {keep: true, floor: true}}, true},
		{[]step{{keep: true, key: true}, {floor: true}}, true},
		{[]step{{keep: true, key: true}, {}}, false},
		{[]step{{f: lost, err: failed}, {keep: true, floor: true}}, false},
	} {
		var tr trace
		var got bool
		for _, s := range c.steps {
			got = tr.removed(s.f, s.err, s.keep, s.key, s.floor)
		}
		assert.Equal(t, c.want, got, fmt.Sprint(i))
	}
}
