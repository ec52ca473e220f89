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

// An outage is told when each server has failed, since one of them was of use or all had failed before. Those that
// have failed are tried last, the latest of all at the end.
func TestServersThatFail(t *testing.T) {
	now := time.Now()
	s := newServers([]string{"a", "b", "c"})
	fails := func(addr string, err error) bool {
		now = now.Add(time.Second)
		return s.failed(addr, err, now)
	}
	closed := errors.New("connection\n  refused")
	assert.ElementsMatch(t, []string{"a", "b", "c"}, s.order())
	assert.False(t, fails("b", closed))
	assert.Equal(t, "b", s.order()[2])
	assert.False(t, fails("b", closed), "one that fails twice is not two")
	assert.False(t, fails("a", closed))
	assert.Equal(t, []string{"c", "b", "a"}, s.order())
	s.taken(now.Add(time.Millisecond))
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
	s.taken(now.Add(time.Millisecond))
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

func many() (addrs []string) {
	for i := range 50 {
		addrs = append(addrs, fmt.Sprint(i))
	}
	return addrs
}
