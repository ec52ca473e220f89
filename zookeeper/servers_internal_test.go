package zookeeper

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/driver"
)

// It is an outage once each server has failed since one last took up the session, or all had failed. Servers that have
// failed are tried last, the latest at the end.
func TestServersThatFail(t *testing.T) {
	now := time.Now()
	s := newServers([]string{"a", "b", "c"})
	fails := func(addr string, err error) bool {
		now = now.Add(time.Second)
		return s.failed(addr, err, 0, now)
	}
	closed := errors.New("connection\n  refused")
	assert.ElementsMatch(t, []string{"a", "b", "c"}, s.order(now))
	assert.False(t, fails("b", closed))
	assert.Equal(t, "b", s.order(now)[2])
	assert.False(t, fails("b", closed), "one that fails twice is not two")
	assert.False(t, fails("a", closed))
	assert.Equal(t, []string{"c", "b", "a"}, s.order(now))
	s.taken("c", now.Add(time.Millisecond))
	assert.False(t, fails("c", closed), "the others failed before one took up the session")
	assert.NoError(t, s.outage)
	assert.False(t, fails("a", fmt.Errorf("%w: an election", errNotServing)))
	assert.True(t, fails("b", closed))
	assert.ErrorIs(t, s.outage, driver.ErrUnavailable)
	assert.ErrorIs(t, s.outage, errNotServing, "it passes")
	assert.Contains(t, s.outage.Error(), "b: connection refused; c: connection refused")
	assert.Equal(t, []int{1, 1}, []int{s.rounds, s.streak})
	assert.False(t, fails("c", closed), "a new round")
	assert.Error(t, s.outage, "it lasts")
	s.taken("c", now.Add(time.Millisecond))
	assert.NoError(t, s.outage)
	assert.Equal(t, []int{1, 0}, []int{s.rounds, s.streak})

	certificate := &tls.CertificateVerificationError{Err: closed}
	for i, err := range []error{certificate, fmt.Errorf("%w: TLS", errOtherProtocol), certificate} {
		assert.Equal(t, i == 2, fails(string(rune('a'+i)), err))
	}
	assert.True(t, isRefusal(s.outage), "asking again does not help")
	assert.NotErrorIs(t, s.outage, driver.ErrUnavailable)
	fails("a", certificate)
	fails("b", closed)
	assert.True(t, fails("c", certificate))
	assert.False(t, isRefusal(s.outage), "one of them may get better")
	assert.False(t, slices.Equal(newServers(many()).addrs, newServers(many()).addrs), "sessions spread over them")
}

// A server that hangs is waited for in between, longer each time, while the others are asked: they may just be electing
// a leader.
func TestAServerThatHangsRests(t *testing.T) {
	const most = 5 * time.Second
	now := time.Now()
	s := newServers([]string{"a", "b", "hung"})
	fails := func(addr string, hung time.Duration) bool {
		now = now.Add(hung + time.Millisecond)
		return s.failed(addr, errNotServing, hung, now)
	}
	for _, seconds := range []int{1, 2, 4, 5, 5} {
		patience := time.Duration(seconds) * time.Second
		assert.Equal(t, patience, s.patience("hung", most))
		assert.Equal(t, firstPatience, s.patience("a", most))
		fails("a", 0)
		fails("b", 0)
		assert.True(t, fails("hung", patience))
		assert.Equal(t, []string{"a", "b"}, s.order(now), "it rests")
		for range 3 {
			assert.False(t, fails("a", 0))
			assert.Equal(t, []string{"b", "a"}, s.order(now))
			assert.True(t, fails("b", 0), "the third one counts as long as it rests")
		}
		now = now.Add(patience)
		assert.Equal(t, []string{"a", "b", "hung"}, s.order(now), "the others are asked once more before it")
	}
	s.taken("hung", now)
	assert.Equal(t, firstPatience, s.patience("hung", most))
	fails("hung", time.Second)
	s.failed("a", errors.New("connection refused"), 0, now)
	s.failed("b", errNotServing, time.Second, now)
	assert.Len(t, s.order(now), 3, "who is down or hangs elects nobody")
	assert.Equal(t, most, (&servers{addrs: []string{"a"}}).patience("a", most), "nobody else is there")

	s = newServers([]string{"a", "b"})
	fails("a", time.Second)
	s.failed("b", errNotServing, time.Second, now)
	assert.Equal(t, most, s.patience("a", most), "all are slow")

	s = newServers([]string{"a", "h1", "h2"})
	fails("a", 0)
	fails("h1", time.Second)
	fails("h2", time.Second)
	fails("a", 0)
	now = now.Add(time.Second)
	assert.Equal(t, []string{"h1", "a", "h2"}, s.order(now))
	fails("h1", 2*time.Second)
	assert.Equal(t, []string{"a", "h2"}, s.order(now), "in between of two that hang, too")
	s.taken("a", now.Add(time.Millisecond))
	now = now.Add(time.Hour)
	fails("a", 0)
	assert.Equal(t, firstPatience, s.patience("h1", most), "how long it hung before one took up the session is old")
}

func many() (addrs []string) {
	for i := range 50 {
		addrs = append(addrs, fmt.Sprint(i))
	}
	return addrs
}
