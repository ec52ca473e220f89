package redlock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/redisconn"
)

// What a node's answers leave there: the table of the drawing of leftover.
func TestWhatAnswersLeave(t *testing.T) {
	unknown := &redisconn.Error{Err: redisconn.ErrTimeout, Unknown: true}
	refused := &redisconn.Error{Err: errors.New("no")}
	granted, no := vote{granted: true}, vote{holder: "b"}
	votes := []struct {
		from leftover
		said vote
		got  reply
		to   leftover
	}{
		{none, granted, reply{}, there},
		{none, no, reply{}, none},
		{none, vote{}, reply{err: refused}, none},
		{none, vote{}, reply{err: errRestarted}, none},
		{none, vote{}, reply{err: unknown}, late},
		{none, no, reply{repeated: true}, late},      // the first copy may still arrive
		{none, granted, reply{repeated: true}, late}, // and may be the one that does
		{late, granted, reply{}, late},               // a repair is under way
		{there, no, reply{}, there},                  // it was repaired
	}
	for _, c := range votes {
		s := site{left: c.from, asking: true}
		s.voted(answer{said: c.said, reply: c.got})
		assert.Equal(t, c.to, s.left, "%+v", c)
		assert.False(t, s.asking)
	}
	mine, gone := reply{state: redisconn.Mine}, reply{state: redisconn.Gone}
	releases := []struct {
		from site
		got  reply
		to   leftover
	}{
		{site{left: there}, mine, removed},
		{site{left: there}, gone, none},
		{site{left: there}, reply{state: redisconn.Theirs}, none},
		{site{left: late}, gone, none},
		{site{left: there, again: true}, gone, removed}, // by a release whose answer was lost
		{site{left: there}, reply{state: redisconn.Gone, repeated: true}, removed},
		{site{left: there}, reply{err: unknown}, there},
		{site{left: late}, reply{err: refused}, late},
	}
	for _, c := range releases {
		s := c.from
		s.releasing = true
		s.freed(c.got)
		assert.Equal(t, c.to, s.left, "%+v", c)
		assert.Equal(t, c.got.err, s.err)
		assert.False(t, s.releasing)
		assert.Equal(t, c.from.again || c.got.repeated || errors.Is(c.got.err, unknown), s.again, "%+v", c)
	}
}

// What comes of a release, by what five nodes have said: r removed, g gone, - no answer in time,
// . not yet.
func TestWhatComesOfARelease(t *testing.T) {
	for _, c := range []struct {
		stage stage
		nodes string
		is    error // nil: not known yet
	}{
		{releasing, ".....", nil},
		{releasing, "rr...", nil},
		{releasing, "rrr..", errDone},
		{releasing, "rrr--", errDone},
		{releasing, "rrggg", locker.ErrLost},
		{releasing, "ggg..", locker.ErrLost},
		{releasing, "rrg-.", nil},
		{releasing, "rrg--", errDone}, // others can have it
		{releasing, "rr---", locker.ErrUnavailable},
		{releasing, "gg---", locker.ErrUnavailable},
		{abandoned, "rrr..", nil},
		{abandoned, "rrrr-", locker.ErrUnavailable}, // a request may still arrive
		{abandoned, "rgggg", errDone},
		{abandoned, "ggggg", errDone},
	} {
		b := &Backend{quorum: 3}
		h := &hold{b: b, stage: c.stage, end: &ending{try: newTry()}}
		for _, n := range c.nodes {
			b.nodes = append(b.nodes, &node{addr: fmt.Sprint("node", len(b.nodes))})
			s := site{left: map[rune]leftover{'r': removed, '-': there, '.': there}[n], releasing: n == '.'}
			if n == '-' {
				s.err = errNoAnswer
			}
			h.sites = append(h.sites, s)
		}
		try := h.end.try
		h.decide()
		select {
		case <-try.over:
			require.NotNil(t, c.is, "%s: %v", c.nodes, try.err)
			if errors.Is(c.is, errDone) {
				assert.NoError(t, try.err, c.nodes)
			} else {
				assert.ErrorIs(t, try.err, c.is, c.nodes)
			}
			assert.Equal(t, c.stage == releasing && try.err == nil, h.stage == released, c.nodes)
		default:
			assert.Nil(t, c.is, c.nodes)
		}
	}
}

var errDone = errors.New("released")

// The reader of answers is woken when there are so many as it waits for, and gets them in order.
func TestAnswersAreReadWhenThereAreEnough(t *testing.T) {
	m := newAnswers(5)
	var got []int
	take := func(a answer) { got = append(got, a.node) }
	done := make(chan struct{})
	read := make(chan bool)
	go func() { read <- m.take(done, 3, take) }()
	m.put(answer{node: 1})
	m.put(answer{node: 2})
	select {
	case <-read:
		require.Fail(t, "it was read too soon")
	case <-time.After(10 * time.Millisecond):
	}
	m.put(answer{node: 3})
	require.True(t, <-read)
	assert.Equal(t, []int{1, 2, 3}, got)
	go func() { read <- m.take(done, 1, take) }()
	close(done)
	require.False(t, <-read)
}
