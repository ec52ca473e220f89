package redisnode_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisnode"
)

// askWithin is how long the tests below wait for an answer that does not come.
const askWithin = 2 * time.Second

// withoutInfo has a server not say which run it is.
var withoutInfo = lab.WithUser("locker", "on", ">secret", "~*", "&*", "+@all", "-info")

// A second copy may go to the run of the server that the first was for, and to no other, which could grant what that
// one has refused, or the other way round. Renewals may. Once no copy is under way that could still be answered, the
// caller is not kept waiting.
func TestCopiesAreForOneRun(t *testing.T) {
	lab.NeedPause(t)
	for _, c := range []struct{ anywhere, alone bool }{{}, {alone: true}, {anywhere: true}} {
		lab.Again(t, func() bool {
			before, after := lab.StartRedis(t), lab.StartRedis(t)
			var addr atomic.Value
			addr.Store(before.Addr())
			node := askerWithin(t, redis.NewClient(&redis.Options{Addr: "redis.example:6379", MaxRetries: -1,
				ReadTimeout: askWithin / 4, Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
					return (&net.Dialer{}).DialContext(ctx, network, addr.Load().(string))
				}}), askWithin)
			if c.anywhere {
				node.takes = redisnode.NewScript(1, "", takeText).Anywhere()
			}
			if load(t, node); c.alone {
				warm(t, node)
			}
			before.Pause()
			addr.Store(after.Addr()) // new connections lead to another run
			began := time.Now()
			o := node.Do(context.Background(), node.takeAttempt("n", "me"))
			took := time.Since(began)
			before.Resume()
			if o.Err == nil && o.Copies == 1 {
				return false // on a busy machine the pool may have no connection left: the first copy was for the other run
			}
			if c.anywhere && o.Err != nil {
				return false // it takes a busy machine so long to send a copy
			} else if !c.anywhere && assert.NotNil(t, o.Err) {
				assert.True(t, o.Err.Unknown, "the first copy may yet be carried out: %v", o.Err)
				assert.Equal(t, int64(0), after.MustDo(t, "EXISTS", redisnode.LockKey("n")), "a copy was")
			}
			for resumed := time.Now(); before.MustDo(t, "EXISTS", redisnode.LockKey("n")) == int64(0); {
				if time.Since(resumed) > askWithin {
					return false // the first copy has not arrived, which had no connection left either
				}
			}
			t.Logf("%+v: %v after %v", c, o.Err, took)
			return took < askWithin
		})
	}
}

// On the same run, a copy is answered. The first one comes back later, and shares nothing with it, nor with what its
// maker asks next.
func TestACopyOnAFreshConnection(t *testing.T) {
	_, proxy, node := behindProxy(t, soon, redis.Options{})
	load(t, node)
	for range 3 {
		value, held := rand.Text(), make(chan *lab.Link, 1)
		proxy.OnRequest(value, func(l *lab.Link) {
			l.Requests(lab.Hold)
			held <- l
		})
		o := node.Do(context.Background(), node.takeAttempt(value, value))
		require.Nil(t, o.Err)
		assert.Greater(t, o.Copies, 1)
		assert.Equal(t, redisnode.Done, o.Answer.Code)
		(<-held).Requests(lab.Pass)
		for i := range 50 {
			assert.Equal(t, redisnode.Done, node.mustTake(t, fmt.Sprint(value, i), value))
			assert.Equal(t, redisnode.Theirs, node.mustTake(t, value, "another"))
		}
	}
}

// Where all answers take long, one that takes long is not silent, and no copy is sent (R21).
func TestASlowServerIsNotSilent(t *testing.T) {
	_, proxy, node := behindProxy(t, soon, redis.Options{})
	load(t, node)
	lab.Again(t, func() bool { // a machine that stalls is slow, too
		for _, delay := range []int{30, 80, 200} { // ms, each way
			proxy.SetDelay(time.Duration(delay) * time.Millisecond)
			o := node.Do(context.Background(), node.takeAttempt("n", "me"))
			require.Nil(t, o.Err)
			if o.Copies > 1 {
				return false
			}
		}
		return true
	})
}

// Where the server does not say which run it is, there is one copy, also if its connection ends, and its callers wait no
// longer than the driver does. Of renewals there are more.
func TestWithoutInfoThereAreNoCopies(t *testing.T) {
	for _, c := range []struct{ ends, anywhere bool }{{}, {ends: true}, {anywhere: true}, {ends: true, anywhere: true}} {
		lab.Again(t, func() bool {
			value := rand.Text()
			server, proxy, node := behindProxy(t, askWithin, redis.Options{Username: "locker", Password: "secret",
				MaxRetries: -1, ReadTimeout: askWithin / 4}, withoutInfo)
			if c.anywhere {
				node.takes = redisnode.NewScript(1, "", takeText).Anywhere()
			}
			load(t, node)
			proxy.OnRequest(value, func(l *lab.Link) {
				if c.ends {
					l.CutOnReply()
				} else {
					l.Requests(lab.Drop)
				}
			})
			before := server.Commands(t)
			began := time.Now()
			_, err := node.take(t.Context(), "n", value)
			took := time.Since(began)
			if c.anywhere {
				return err == nil // it may take a busy machine as long to send a copy
			}
			assert.True(t, asError(t, err).Unknown)
			assert.False(t, asError(t, err).Refused)
			if c.ends {
				assert.EqualValues(t, 1, server.Commands(t).Since(before)["evalsha"])
				return true
			}
			require.ErrorIs(t, err, redisnode.ErrTimeout)
			assert.GreaterOrEqual(t, took, askWithin/4)
			assert.Zero(t, server.Commands(t).Since(before)["evalsha"])
			return took < askWithin
		})
	}
}

// Where no copies can be sent, no caller gives up its connection after the short time that others take alone: the answer
// may come a little later, and there is no other way to get it.
func TestWithoutInfoALateAnswerIsWaitedFor(t *testing.T) {
	lab.NeedPause(t)
	server := lab.StartRedis(t, withoutInfo)
	node := askerWithin(t, redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "locker", Password: "secret"}), soon)
	warm(t, node)
	server.Pause()
	time.AfterFunc(200*time.Millisecond, server.Resume)
	o := node.Do(t.Context(), node.takeAttempt("n", "me"))
	require.Nil(t, o.Err)
	assert.Equal(t, redisnode.Done, o.Answer.Code)
	assert.Equal(t, 1, o.Copies)
}

// Nor does a server get two copies where both ask which run it is, and it does not say so to either.
func TestASlowServerWithoutInfoGetsOneCopy(t *testing.T) {
	server := lab.StartRedis(t, withoutInfo)
	proxy := lab.StartProxy(t, server.Addr())
	proxy.SetDelay(35 * time.Millisecond) // each way: the second copy asks before the first is answered
	answered := 0
	for range 5 {
		before := server.Commands(t)
		node := askerWithin(t, redis.NewClient(&redis.Options{Addr: proxy.Addr(), Username: "locker", Password: "secret",
			Protocol: 2}), soon)
		o := node.Do(t.Context(), node.takeAttempt("n", "me"))
		time.Sleep(200 * time.Millisecond) // for a second one to arrive
		used := server.Commands(t).Since(before)
		assert.LessOrEqual(t, used["eval"]+used["evalsha"], int64(1))
		if o.Err == nil { // a busy machine may let the time of the only copy pass
			answered++
		}
		t.Log(o.Err, o.Copies, used["info"])
	}
	assert.Positive(t, answered)
}

// What was refused unseen by another run, since its scripts are not known there, is for that run from then on.
func TestARequestIsForTheRunThatAnswers(t *testing.T) {
	server, node := setUp(t)
	load(t, node)
	server.Restart(t)
	locktest.Eventually(t, soon, "it is for the new run", func() bool {
		_, err := node.take(t.Context(), "n", "me")
		return err == nil
	})
	lab.Again(t, func() bool { // on a busy machine copies are sent, too
		before := server.Commands(t)
		for range 10 {
			node.mustTake(t, "n", "me")
		}
		used := server.Commands(t).Since(before)
		t.Log(used)
		return used["evalsha"] == 10 && used["eval"] == 0 && used["info"] == 0 // it is asked once
	})
}

// A request that waited in the queue for longer than its answer may take, and then went out on a connection that is
// silent, is sent on another: only the time on its way counts (R21, R22).
func TestARequestThatHadToWaitIsSentAgain(t *testing.T) {
	lab.NeedPause(t)
	server, proxy, node := behindProxy(t, soon, redis.Options{MaxRetries: -1, ReadTimeout: time.Minute})
	t.Cleanup(func() { node.End(); _ = node.Client().Close() }) // what hangs ends
	load(t, node)
	lab.Again(t, func() bool {
		server.Pause()
		for full := false; !full; { // as many are on their way as may be
			waits := node.takeAttempt("before", "me")
			node.Start(waits, func(*redisnode.Attempt) {})
			time.Sleep(50 * time.Millisecond)
			full = node.Withdraw(waits)
		}
		const limit = 3 * time.Second // longer than it takes to call a connection silent here
		value, over := rand.Text(), make(chan redisnode.Outcome, 1)
		a := node.takeAttempt(value, value)
		a.Limit = limit
		node.Start(a, func(a *redisnode.Attempt) { over <- a.Outcome })
		time.Sleep(limit)
		proxy.OnRequest(value, func(l *lab.Link) { l.Replies(lab.Drop) })
		resumed := time.Now()
		server.Resume()
		o := <-over
		if o.Since.Before(resumed) || o.Err == nil && o.Copies == 1 {
			return false // it did not have to wait, or was answered
		}
		t.Log(o.Err)
		return o.Err == nil // it may take a busy machine as long to send a copy
	})
}

// Of a flight of which one was answered and others were not, each has what is its own, and none is used again while the
// driver has it.
func TestAFlightThatIsAnsweredInPart(t *testing.T) {
	_, proxy, node := behindProxy(t, soon, redis.Options{MaxRetries: -1})
	t.Cleanup(func() { node.End(); _ = node.Client().Close() }) // what hangs ends
	load(t, node)
	for range 3 {
		proxy.OnRequest("last", func(l *lab.Link) { l.Replies(lab.Drop) })
		errs := make(chan error, 8)
		for _, name := range []string{"a", "b", "c", "last"} {
			go func() {
				_, err := node.take(t.Context(), name, "me")
				errs <- err
			}()
			go func() {
				_, err := node.inspect(t.Context(), name)
				errs <- err
			}()
		}
		for range cap(errs) {
			assert.NoError(t, <-errs)
		}
	}
}
