package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/redlock"
)

// pausing is a context that whoever asks it for its error waits for.
type pausing struct {
	context.Context
	pause func()
}

func (p pausing) Err() error {
	p.pause()
	return p.Context.Err()
}

// All requests hang, the first round is given up, and its votes arrive before the second round's,
// and before what takes them back: what the second round then finds is no other holder, and an
// outage is not reported as "held" (R17).
func TestOwnLateVotesAreNotAnothersLock(t *testing.T) {
	s := durable(t, 1)
	b := s.through(t, redlock.Options{NodeTimeout: 80 * time.Millisecond})
	p := s.proxies[0]
	// next holds the next request with text in it, on its way to the node.
	next := func(text string, held chan<- *lab.Link, then func()) {
		p.OnRequest(text, func(l *lab.Link) {
			l.Requests(lab.Hold)
			then()
			held <- l
		})
	}
	for n := range 10 {
		warm(t, b)
		r := request(fmt.Sprint("x", n), time.Minute)
		vote, takeBack, again, third := make(chan *lab.Link, 1), make(chan *lab.Link, 1),
			make(chan *lab.Link, 1), make(chan struct{})
		sent := make(chan struct{})
		next(r.Owner+".0", vote, func() { next(r.Owner+".0", takeBack, func() { close(sent) }) })
		next(r.Owner+".1", again, func() {})
		p.OnRequest(r.Owner+".2", func(*lab.Link) { close(third) })
		var g driver.Grant
		var err error
		answered, voted := make(chan struct{}), false
		go func() {
			defer close(answered)
			// Between two rounds: so that the take-back and the next vote are not one batch, which arrives
			// in that order.
			g, err = b.Acquire(pausing{t.Context(), func() {
				select {
				case <-sent:
				case <-time.After(time.Second):
				}
			}}, r)
		}()
		select {
		case second := <-again:
			(<-vote).Requests(lab.Pass)
			for until := time.Now().Add(time.Second); !voted && time.Now().Before(until); time.Sleep(time.Millisecond) {
				voted = strings.Contains(s.value(t, 0, r.Name), r.Owner+".0") // unless its connection was given up before
			}
			second.Requests(lab.Pass)
			select {
			case <-third:
			case <-answered:
			}
			(<-takeBack).Requests(lab.Pass)
		case <-answered:
		}
		<-answered
		require.Nil(t, g.Refused, "by itself")
		if errors.Is(err, driver.ErrUnavailable) {
			continue // too slow for the second round
		}
		require.NoError(t, err)
		met := !strings.Contains(s.value(t, 0, r.Name), r.Owner+".1")
		release(t, g)
		if voted {
			require.True(t, met, "the second round did not meet the first one's vote: this test tests nothing")
			return
		}
	}
	require.Fail(t, "not once in ten times: the machine is too busy")
}

func TestLockIsOnAllNodesAndGoneAfterRelease(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5} {
		for _, fencing := range []bool{false, true} {
			s := durable(t, n)
			a, b := s.backend(t, redlock.Options{Fencing: fencing}), s.backend(t, redlock.Options{Fencing: fencing})
			g := acquire(t, a, "x", 10*time.Second)
			s.everywhere(t, g, "x")
			refused(t, b, "x", 10*time.Second)
			v, err := g.Hold.Renew(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 10*time.Second, v.TTL)
			st, err := b.Inspect(t.Context(), "x")
			require.NoError(t, err)
			assert.True(t, st.Held)
			assert.Equal(t, "test", st.Label)
			assert.WithinDuration(t, time.Now(), st.Since, 30*time.Second)
			assert.Equal(t, g.Token, st.Token)
			assert.Equal(t, fencing, g.Token != 0)
			release(t, g)
			within(t, 30*time.Second, "no node has it", func() bool { return s.holders(t, "x") == 0 })
			g2 := acquire(t, b, "x", 10*time.Second)
			if fencing {
				assert.Greater(t, g2.Token, g.Token)
			}
			release(t, g2)
		}
	}
}
