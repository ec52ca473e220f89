package redlock_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisnode"
	"github.com/golockers/locker/redlock"
)

func TestListBreakAndCheck(t *testing.T) {
	s := durable(t, 3)
	b := s.backend(t, redlock.Options{})
	for _, name := range []string{"a/1", "a/{2}", "b"} {
		s.everywhere(t, acquire(t, b, name, time.Minute), name)
	}
	s.servers[1].MustDo(t, "SET", redisnode.LockKey("a/ghost"), "0000000000000001 of one node:", "PX", 60000)
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

	find := func(what string) driver.Severity {
		all, err := b.Check(t.Context())
		require.NoError(t, err)
		worst := driver.SeverityOK
		for _, f := range all {
			if strings.HasPrefix(f.What, what) {
				worst = max(worst, f.Severity)
			}
		}
		return worst
	}
	assert.Equal(t, driver.SeverityOK, find(""))
	s.servers[0].MustDo(t, "CONFIG", "SET", "maxmemory", "1gb")
	s.servers[0].MustDo(t, "CONFIG", "SET", "maxmemory-policy", "volatile-lru")
	assert.Equal(t, driver.SeverityProblem, find("maxmemory-policy"))
	s.servers[2].Kill()
	assert.Equal(t, driver.SeverityWarning, find("node "+s.servers[2].Addr()))
}

// Among many keys of others: what was found before the caller gave up has been yielded.
func TestListYieldsAsItGoes(t *testing.T) {
	s := durable(t, 3)
	b := s.backend(t, redlock.Options{})
	s.servers.MustDo(t, "EVAL", `for i = 1, 20000 do redis.call('SET', 'cache:' .. i, '') end
		for i = 1, 100 do redis.call('SET', 'locker:2:{' .. i .. '}', '0000000000000001 me:') end`, 0)
	var last int64
	scans := func() int64 { // since it was called before
		before := last
		last = 0
		each(s.servers, func(r *lab.Redis) { last += r.Commands(t)["scan"] })
		return last - before
	}
	all, err := locktest.List(t.Context(), b, "")
	require.NoError(t, err)
	assert.Len(t, all, 100)
	whole := scans()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	found, early := 0, int64(0)
	for _, err = range b.List(ctx, "") {
		if err != nil {
			break
		}
		if found++; found == 1 {
			early = scans()
			cancel()
		}
	}
	require.ErrorIs(t, err, context.Canceled)
	assert.Less(t, early, whole/2)
	assert.Positive(t, found)
	assert.Less(t, found, 100)
}

// Close in the loop, or beside it, ends the walk, which has more names to tell, and is not kept waiting by it.
func TestCloseEndsAList(t *testing.T) {
	s := durable(t, 3)
	b := s.backend(t, redlock.Options{})
	for _, name := range []string{"a", "b", "c"} {
		s.everywhere(t, acquire(t, b, name, time.Minute), name)
	}
	closed := make(chan error, 1)
	var last error
	for _, err := range b.List(t.Context(), "") {
		if last = err; err != nil {
			break
		}
		go func() { closed <- b.Close() }()
		select {
		case err := <-closed:
			require.NoError(t, err)
		case <-time.After(10 * time.Second):
			t.Fatal("Close waits for the walk, and that for whoever calls Close")
		}
	}
	require.ErrorIs(t, last, driver.ErrClosed)
}

// What the restart guard prevents is no warning, so that a pipeline can be green: without it, it is one.
func TestCheckDoesNotWarnOfWhatTheGuardPrevents(t *testing.T) {
	s := start(t, 3)
	for off, worst := range map[bool]driver.Severity{false: driver.SeverityInfo, true: driver.SeverityWarning} {
		b := s.backend(t, redlock.Options{NoRestartGuard: off})
		lab.Again(t, func() bool { // a node of a machine that stalls does not answer in time
			all, err := b.Check(t.Context())
			if err != nil || slices.ContainsFunc(all, func(f driver.Finding) bool { return strings.HasPrefix(f.What, "node ") }) {
				return false
			}
			for _, f := range all {
				if strings.HasPrefix(f.What, "appendonly") {
					assert.Equal(t, worst, f.Severity, f)
				} else {
					assert.Equal(t, driver.SeverityOK, f.Severity, f)
				}
			}
			return true
		})
	}
}

// A clock that is off is told. An answer that is late says nothing of its server's clock.
func TestClocksThatAreOffAreTold(t *testing.T) {
	t.Parallel()
	s := start(t, 3, lab.WithAppendOnly(), lab.WithClock()).proven(t)
	s.patient = true
	b := s.through(t, redlock.Options{})
	clocks := func() []driver.Finding {
		found, err := b.Check(t.Context())
		require.NoError(t, err)
		return slices.DeleteFunc(found, func(f driver.Finding) bool { return !strings.HasPrefix(f.What, "clock of ") })
	}
	s.proxies[2].Requests(lab.Hold)
	time.AfterFunc(1300*time.Millisecond, func() { s.proxies[2].Requests(lab.Pass) })
	assert.Empty(t, clocks())
	s.servers[1].JumpClock(t, -time.Hour)
	off := regexp.MustCompile("^-(1h0m|59m5)[0-9]")
	lab.Again(t, func() bool { // a node that is late, on a busy machine, is not compared
		found := clocks()
		t.Log(found)
		return len(found) == 1 && found[0].What == "clock of "+s.proxies[1].Addr() &&
			found[0].Severity == driver.SeverityWarning && off.MatchString(found[0].Found)
	})
}

// Who does not wait for all nodes is not told what depends on those that have not answered: here two of three have what a
// round has left, and all others the lock.
func TestAnInspectThatIsGivenUpGuessesNothing(t *testing.T) {
	s := durable(t, 5)
	b, closed := s.through(t, redlock.Options{}), s.through(t, redlock.Options{NodeTimeout: 20 * time.Second})
	warm(t, b)
	warm(t, closed)
	answers := func() (all [3]int64) {
		for i := range all {
			all[i] = s.proxies[i].Stats().Replies.Sent
		}
		return all
	}
	s.servers[:2].MustDo(t, "SET", redisnode.LockKey("n"), "0000000000000001 left:", "PX", 60000)
	s.servers[2:].MustDo(t, "SET", redisnode.LockKey("n"), "0000000000000001 holder:", "PX", 60000)
	s.proxies[3:].Requests(lab.Hold)
	lab.Again(t, func() bool { // on a busy machine fewer have answered
		_, err := b.Inspect(locktest.Within(t, 300*time.Millisecond), "n")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return strings.Contains(err.Error(), "who has it depends on those that have not answered")
	})

	before := answers()
	gone := make(chan error)
	go func() {
		_, err := closed.Inspect(t.Context(), "n")
		gone <- err
	}()
	within(t, 30*time.Second, "the others have answered", func() bool {
		now := answers()
		return now[0] > before[0] && now[1] > before[1] && now[2] > before[2]
	})
	_ = closed.Close() // it may say that a request is not answered
	require.ErrorIs(t, <-gone, driver.ErrClosed)
	s.proxies[3:].Requests(lab.Pass)
	st, err := b.Inspect(t.Context(), "n")
	require.NoError(t, err)
	assert.Equal(t, "holder:", st.Holder)
}

// A key that is no lock is named to those who look at it, or want the lock; who lists locks, or breaks one, does not
// see it. At one node it does not hide the lock that the others may have.
func TestAKeyThatIsNoLock(t *testing.T) {
	s := durable(t, 3)
	b := s.through(t, redlock.Options{})
	s.everywhere(t, acquire(t, b, "a", time.Minute), "a")
	list := func() (names []string, err error) {
		all, err := locktest.List(t.Context(), b, "")
		for _, st := range all {
			names = append(names, st.Name)
		}
		return names, err
	}
	for i, r := range s.servers {
		within(t, 30*time.Second, "its vote is taken back", func() bool { return s.value(t, i, "b") == "" })
		r.MustDo(t, "RPUSH", redisnode.LockKey("b"), "no lock")
		st, err := b.Inspect(t.Context(), "b")
		if i == 0 {
			require.NoError(t, err, "two are a quorum")
			assert.False(t, st.Held)
		} else {
			_, asked := locktest.Ask(t.Context(), b, request("b", time.Minute))
			for _, err := range []error{err, asked} {
				require.ErrorContains(t, err, "delete it")
				assert.NotErrorIs(t, err, driver.ErrUnavailable)
			}
		}
		names, err := list()
		require.NoError(t, err)
		assert.Equal(t, []string{"a"}, names)
	}
	require.NoError(t, b.Break(t.Context(), driver.State{Name: "b", Holder: "no lock"}))
	assert.Equal(t, int64(1), s.servers[0].MustDo(t, "LLEN", redisnode.LockKey("b")))
	s.servers[2].MustDo(t, "DEL", redisnode.LockKey("b"))
	s.servers[0].MustDo(t, "DEL", redisnode.LockKey("a"))
	s.servers[0].MustDo(t, "RPUSH", redisnode.LockKey("a"), "no lock")
	names, err := list()
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, names)
	s.proxies[1].Set(lab.Reset)
	_, err = list()
	require.ErrorIs(t, err, driver.ErrUnavailable)
}

func TestMinHold(t *testing.T) {
	s := durable(t, 3)
	b := s.backend(t, redlock.Options{Fencing: true, MaxTTL: time.Hour})
	r := request("x", time.Minute)
	r.MinHold = 30 * time.Minute
	g := locktest.Acquire(t, b, r)
	s.everywhere(t, g, "x")
	s.servers[0].MustDo(t, "DEL", redisnode.LockKey("x"))
	s.everywhere(t, g, "x") // since it was repaired
	left, _ := s.servers[0].MustDo(t, "PTTL", redisnode.LockKey("x")).(int64)
	assert.Greater(t, left, (29 * time.Minute).Milliseconds(), "a repair knows of it")
	release(t, g)
	r.MinHold = 2 * time.Hour
	_, err := locktest.Ask(t.Context(), b, r)
	require.ErrorIs(t, err, driver.ErrInvalid, "the restart guard would not know")
}

// Whichever command a node's user may not run, what is refused there leaves no key without an expiry.
func TestNothingStaysThatAnACLHasRefusedHalfway(t *testing.T) {
	s := start(t, 3, lab.WithUser("locker", "on", ">secret", "~*", "&*", "+@all"), lab.WithAppendOnly()).proven(t)
	var clients []*redis.Client
	for _, r := range s.servers {
		clients = append(clients, newClient(t, &redis.Options{Addr: r.Addr(), Username: "locker", Password: "secret"}))
	}
	b := on(t, redlock.Options{Fencing: true}, clients...)
	warm(t, b)
	for _, command := range []string{"mget", "set", "del", "exists", "time", "pttl", "pexpire", "publish"} {
		for from := range 7 {
			name := fmt.Sprintf("without %s from step %d on", command, from)
			r := request(name, time.Minute)
			r.Wait = true
			var g driver.Grant
			for i, step := range []func(){
				func() { g = locktest.Acquire(t, b, r) },
				func() { refused(t, b, name, time.Minute) },
				func() { s.servers[0].MustDo(t, "DEL", redisnode.LockKey(name)) }, // the next renewal repairs it
				func() { _, _ = g.Hold.Renew(t.Context()) },
				func() { _, _ = g.Hold.Renew(t.Context()) },
				func() { _ = g.Hold.Release(t.Context(), 0) },
				func() { _ = g.Hold.Undo(t.Context()) },
			} {
				if i == from {
					s.servers[0].MustDo(t, "ACL", "SETUSER", "locker", "-"+command)
				}
				step()
			}
			s.servers[0].MustDo(t, "ACL", "SETUSER", "locker", "+"+command)
		}
	}
	require.NoError(t, b.Close())
	forever := s.servers[0].MustDo(t, "EVAL", `local forever = {}
		for _, key in ipairs(redis.call('KEYS', '*')) do
			if redis.call('PTTL', key) < 0 and key ~= 'locker:2:runs' then
				forever[#forever + 1] = key
			end
		end
		return forever`, 0)
	assert.Empty(t, forever)
}
