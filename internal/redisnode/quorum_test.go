package redisnode_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisnode"
)

// member is one node of a quorum, asked synchronously.
type member struct {
	t      *testing.T
	server *lab.Redis
	m      *redisnode.Member
	ballot *redisnode.Ballot
}

func newMember(t *testing.T) *member {
	s := lab.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	n, err := redisnode.New(client, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = n.Close() })
	m, err := redisnode.NewMember(n)
	require.NoError(t, err)
	q := &member{t: t, server: s, m: m}
	q.prepare()
	return q
}

func (q *member) prepare() redisnode.Identity {
	id, err := q.m.Identify(q.t.Context())
	require.NoError(q.t, err)
	require.NotEmpty(q.t, id.RunID)
	q.ballot, err = q.m.Prepare(q.t.Context(), id)
	require.NoError(q.t, err)
	return id
}

type reply[T any] struct {
	v   T
	err error
}

// answer waits for a callback.
func answer[T any](q *member, ask func(func(T, error)) redisnode.Question) (T, error) {
	q.t.Helper()
	c := make(chan reply[T], 1)
	ask(func(v T, err error) { c <- reply[T]{v, err} })
	select {
	case r := <-c:
		return r.v, r.err
	case <-time.After(10 * time.Second):
		require.Fail(q.t, "no answer")
		panic("not reached")
	}
}

func (q *member) vote(c redisnode.Claim) redisnode.Vote {
	q.t.Helper()
	v, err := answer(q, func(f func(redisnode.Vote, error)) redisnode.Question { return q.m.Vote(q.ballot, c, false, f) })
	require.NoError(q.t, err)
	return v
}

func (q *member) state(ask func(f func(redisnode.State, error)) redisnode.Question) redisnode.State {
	q.t.Helper()
	st, err := answer(q, ask)
	require.NoError(q.t, err)
	return st
}

func (q *member) raise(c redisnode.Claim) redisnode.State {
	q.t.Helper()
	return q.state(func(f func(redisnode.State, error)) redisnode.Question { return q.m.Raise(c, f) })
}

func (q *member) renew(c redisnode.Claim) redisnode.State {
	q.t.Helper()
	return q.state(func(f func(redisnode.State, error)) redisnode.Question { return q.m.Renew(c, f) })
}

func (q *member) repair(c redisnode.Claim) redisnode.State {
	q.t.Helper()
	return q.state(func(f func(redisnode.State, error)) redisnode.Question { return q.m.Repair(q.ballot, c, f) })
}

func (q *member) release(c redisnode.Claim, void time.Duration) redisnode.State {
	q.t.Helper()
	return q.state(func(f func(redisnode.State, error)) redisnode.Question { return q.m.Release(c, void, f) })
}

func claim(value string, token uint64) redisnode.Claim {
	return redisnode.Claim{Name: "x", Value: value, TTL: time.Minute, Fenced: true, Token: token}
}

// The second phase: no counter is raised to where another has raised it, nor
// under it; the same one may do so again.
func TestQuorumCounterIsRaisedByOneOwnerOnly(t *testing.T) {
	q := newMember(t)
	a := q.vote(claim("a", 0))
	require.True(t, a.Granted)
	require.NotZero(t, a.Token)
	assert.Equal(t, redisnode.Mine, q.raise(claim("a", a.Token)))
	assert.Equal(t, redisnode.Mine, q.raise(claim("a", a.Token)), "a repeated request")
	again := q.vote(claim("a", 0))
	assert.True(t, again.Raised)
	assert.Equal(t, a.Token, again.Token)
	assert.Equal(t, redisnode.Theirs, q.raise(claim("b", a.Token+1)))
	assert.Equal(t, redisnode.Mine, q.release(claim("a", 0), 0))
	assert.Equal(t, redisnode.Gone, q.raise(claim("a", a.Token)))

	b := q.vote(claim("b", 0))
	assert.Greater(t, b.Token, a.Token)
	assert.Equal(t, redisnode.Overtaken, q.raise(claim("b", a.Token)), "another's token")
	assert.Equal(t, redisnode.Overtaken, q.raise(claim("b", a.Token-1)))
	assert.Equal(t, redisnode.Mine, q.raise(claim("b", b.Token)))

	// A key that came to A late, by a vote or a repair of before, is no lease.
	q.release(claim("b", 0), 0)
	assert.Equal(t, redisnode.Overtaken, q.repair(claim("a", a.Token)))
	assert.Equal(t, redisnode.Gone, q.renew(claim("a", a.Token)))
	require.True(t, q.vote(claim("a", 0)).Granted)
	assert.Equal(t, redisnode.Overtaken, q.renew(claim("a", a.Token)))
}

func TestQuorumRepair(t *testing.T) {
	q := newMember(t)
	a := claim("a", q.vote(claim("a", 0)).Token)
	require.Equal(t, redisnode.Mine, q.raise(a))
	q.server.MustDo(t, "FLUSHALL") // the counter too
	assert.Equal(t, redisnode.Gone, q.renew(a), "a renewal acquires nothing (R12)")
	assert.Nil(t, q.server.MustDo(t, "GET", redisnode.LockKey("x")))
	assert.Equal(t, redisnode.Mine, q.repair(a))
	assert.Equal(t, redisnode.Mine, q.renew(a))
	assert.Greater(t, q.vote(redisnode.Claim{Name: "x", Value: "a", TTL: time.Minute, Fenced: true}).Token, a.Token-1)

	q.release(a, time.Minute)
	assert.Equal(t, redisnode.Gone, q.repair(a), "released: a late repair finds it void")
	assert.True(t, q.vote(a).Void)
	assert.Nil(t, q.server.MustDo(t, "GET", redisnode.LockKey("x")))
	require.True(t, q.vote(claim("b", 0)).Granted)
	assert.Equal(t, redisnode.Theirs, q.renew(a))
	c := claim("c", 1)
	assert.Equal(t, redisnode.Theirs, q.repair(c))
	assert.Equal(t, redisnode.Theirs, q.release(c, 0))
}

// A server that was restarted does not vote on a ballot of before, and is never
// sent the text; nor is it repaired.
func TestQuorumBallotIsOfOneRun(t *testing.T) {
	q := newMember(t)
	before := q.ballot
	first := q.prepare()
	q.server.Restart(t)
	require.Eventually(t, func() bool {
		_, err := q.m.Identify(t.Context())
		return err == nil
	}, 5*time.Second, 10*time.Millisecond)
	_, err := answer(q, func(f func(redisnode.Vote, error)) redisnode.Question {
		return q.m.Vote(before, claim("a", 0), false, f)
	})
	require.ErrorIs(t, err, redisnode.ErrRestarted)
	_, err = answer(q, func(f func(redisnode.State, error)) redisnode.Question { return q.m.Repair(before, claim("a", 1), f) })
	require.ErrorIs(t, err, redisnode.ErrRestarted)
	assert.Nil(t, q.server.MustDo(t, "GET", redisnode.LockKey("x")))
	_, err = q.m.Prepare(t.Context(), first)
	require.ErrorIs(t, err, redisnode.ErrRestarted, "another run answers")
	assert.NotEqual(t, first.RunID, q.prepare().RunID)
	assert.True(t, q.vote(claim("a", 0)).Granted)
}

// Before 7.0 a server may keep its scripts over a restart: the script itself
// asks who runs it.
func TestQuorumBallotForServersThatKeepScripts(t *testing.T) {
	q := newMember(t)
	id, err := q.m.Identify(t.Context())
	require.NoError(t, err)
	id.Version = "6.2.14"
	q.ballot, err = q.m.Prepare(t.Context(), id)
	require.NoError(t, err)
	assert.True(t, q.vote(claim("a", 0)).Granted)

	other := newMember(t)
	_, err = other.m.Prepare(t.Context(), id)
	require.ErrorIs(t, err, redisnode.ErrRestarted)
	// It has the script now all the same, as one that has kept it over a restart.
	_, err = answer(other, func(f func(redisnode.Vote, error)) redisnode.Question {
		return other.m.Vote(q.ballot, claim("a", 0), false, f)
	})
	require.ErrorIs(t, err, redisnode.ErrRestarted)
	assert.Nil(t, other.server.MustDo(t, "GET", redisnode.LockKey("x")))
}
