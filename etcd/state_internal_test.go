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
	lost := func(shadows bool) func(*trace) { return func(tr *trace) { tr.missing(shadows) } }
	steps := func(all ...func(*trace)) []func(*trace) { return all }
	refused, copied := put(fate{}, failed), put(fate{underWay: true}, nil)
	asFailed, gaveUp := put(fate{carriedOut: true}, failed), put(fate{underWay: true}, failed)
	for _, c := range []struct {
		what  string
		steps []func(*trace)
		// With the lease there or gone, with or without shadows: has it to be taken back?
		left, leftGone, leftShadows bool
		void                        bool // the deletion needs a void key
	}{
		{"nothing was sent", steps(), false, false, false, false},
		{"it was refused", steps(refused), false, false, false, false},
		{"no answer came", steps(put(fate{underWay: true, carriedOut: true}, failed)), true, false, true, true},
		{"it was answered as if it had failed", steps(asFailed), true, false, true, false},
		{"a copy is under way, the other refused", steps(gaveUp, refused), true, false, true, true},
		{"it is queued", steps(found), true, false, true, false},
		{"it is queued, a copy is under way", steps(copied, found), true, false, true, true},
		{"its place was lost", steps(found, lost(false)), false, false, false, false},
		{"its place was lost, shadows may stay", steps(found, lost(true)), true, false, true, false},
		{"its place was lost, a copy may come", steps(copied, found, lost(false)), true, false, true, true},
		{"it was granted", steps(found, func(tr *trace) { tr.stage = granted }), true, false, true, false},
	} {
		var tr trace
		for _, step := range c.steps {
			step(&tr)
		}
		assert.Equal(t, c.left, tr.left(false, false), c.what)
		assert.Equal(t, c.leftGone, tr.left(true, false), c.what)
		assert.Equal(t, c.leftShadows, tr.left(true, true), c.what)
		needed, void := tr.removal(false, false)
		assert.True(t, needed, c.what)
		assert.Equal(t, c.void, void, c.what)
		needed, void = tr.removal(true, true)
		assert.True(t, needed, "%s: shadows stay when the lease goes", c.what)
		assert.False(t, void, "%s: nothing is put under a lease that is gone", c.what)
		needed, _ = tr.removal(true, false)
		assert.False(t, needed, c.what)
		tr.stage = settled
		needed, _ = tr.removal(false, true)
		assert.False(t, needed, "%s: only once", c.what)
		assert.False(t, tr.left(false, true), "%s: it was removed", c.what)
	}
}

// A deletion that got no answer, and is made again, finds nothing: it was there all the same.
func TestTraceOfADeletion(t *testing.T) {
	for i, c := range []struct {
		answers []fate
		found   bool // by the last one, which is answered
		want    bool
	}{
		{[]fate{{}}, true, true},
		{[]fate{{}}, false, false},
		{[]fate{{carriedOut: true, underWay: true}}, false, true}, // answered by a copy
		{[]fate{{carriedOut: true, underWay: true}, {}}, false, true},
		{[]fate{{}, {}}, false, false},
	} {
		var tr trace
		var got bool
		for n, f := range c.answers {
			if n < len(c.answers)-1 {
				assert.False(t, tr.removed(f, errors.New("no answer"), false), fmt.Sprint(i))
				continue
			}
			got = tr.removed(f, nil, c.found)
		}
		assert.Equal(t, c.want, got, fmt.Sprint(i))
	}
}
