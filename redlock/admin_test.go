package redlock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisconn"
	"github.com/golockers/locker/redlock"
)

func TestListBreakAndCheck(t *testing.T) {
	s := durable(t, 3)
	b := s.backend(t, redlock.Options{})
	for _, name := range []string{"a/1", "a/{2}", "b"} {
		s.everywhere(t, acquire(t, b, name, time.Minute), name)
	}
	s.servers[1].MustDo(t, "SET", redisconn.LockKey("a/ghost"), "of one node", "PX", 60000)
	names := map[string]bool{}
	for st, err := range b.List(t.Context(), "a/") {
		require.NoError(t, err)
		assert.True(t, st.Held)
		assert.Equal(t, "test", st.Label)
		names[st.Name] = true
	}
	assert.Equal(t, map[string]bool{"a/1": true, "a/{2}": true}, names)

	st, err := locktest.Break(t.Context(), b, "b")
	require.NoError(t, err)
	assert.True(t, st.Held)
	within(t, 30*time.Second, "it is free", func() bool { return s.holders(t, "b") == 0 })
	st, err = locktest.Break(t.Context(), b, "b")
	require.NoError(t, err)
	assert.False(t, st.Held)

	find := func(what string) locker.Severity {
		all, err := b.Check(t.Context())
		require.NoError(t, err)
		worst := locker.SeverityOK
		for _, f := range all {
			if strings.HasPrefix(f.What, what) {
				worst = max(worst, f.Severity)
			}
		}
		return worst
	}
	assert.Equal(t, locker.SeverityOK, find(""))
	s.servers[0].MustDo(t, "CONFIG", "SET", "maxmemory", "1gb")
	s.servers[0].MustDo(t, "CONFIG", "SET", "maxmemory-policy", "volatile-lru")
	assert.Equal(t, locker.SeverityProblem, find("maxmemory-policy"))
	s.servers[2].Kill()
	assert.Equal(t, locker.SeverityWarning, find("node "+s.servers[2].Addr()))
}

// A key in the way at one node does not hide the lock that the others may have.
func TestListTellsWhatItCouldNotLookAt(t *testing.T) {
	s := durable(t, 3)
	b := s.through(t, redlock.Options{})
	s.everywhere(t, acquire(t, b, "a", time.Minute), "a")
	list := func() (names []string, last error) {
		for st, err := range b.List(t.Context(), "") {
			if err != nil {
				return names, err
			}
			names = append(names, st.Name)
		}
		return names, nil
	}
	for _, i := range []int{0, 1} {
		s.servers[i].MustDo(t, "RPUSH", redisconn.LockKey("b"), "no lock")
	}
	names, err := list()
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, names, "b is none")
	s.servers[0].MustDo(t, "DEL", redisconn.LockKey("a"))
	s.servers[0].MustDo(t, "RPUSH", redisconn.LockKey("a"), "no lock")
	names, err = list()
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, names)
	s.proxies[1].Set(lab.Reset)
	_, err = list()
	require.ErrorIs(t, err, locker.ErrUnavailable)
}

func TestMinHold(t *testing.T) {
	s := durable(t, 3)
	b := s.backend(t, redlock.Options{Fencing: true, MaxTTL: time.Hour})
	r := request("x", time.Minute)
	r.MinHold = 30 * time.Minute
	g := locktest.Acquire(t, b, r)
	s.everywhere(t, g, "x")
	s.servers[0].MustDo(t, "DEL", redisconn.LockKey("x"))
	s.everywhere(t, g, "x") // since it was repaired
	left, _ := s.servers[0].MustDo(t, "PTTL", redisconn.LockKey("x")).(int64)
	assert.Greater(t, left, (29 * time.Minute).Milliseconds(), "a repair knows of it")
	release(t, g)
	r.MinHold = 2 * time.Hour
	_, err := b.Acquire(t.Context(), r)
	require.ErrorIs(t, err, locker.ErrInvalid, "the restart guard would not know")
}

// A wrong password is told when opening, also where nobody looks at the servers.
func TestOpenTellsWrongPasswordsWithoutTheGuard(t *testing.T) {
	s := start(t, 3, lab.WithPassword("sesame"))
	url := strings.Replace(s.url(), "redlock://", "redlock://:sesami@", 1) + "?restart_guard=off"
	_, err := openers.Open(t.Context(), url, nil)
	require.ErrorContains(t, err, "WRONGPASS")
	assert.NotErrorIs(t, err, locker.ErrUnavailable)
}
