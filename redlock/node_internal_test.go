package redlock

import (
	"context"
	"crypto/sha1"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisconn"
)

// member is one node of a quorum, asked synchronously.
type member struct {
	*node
	t      *testing.T
	server *lab.Redis
	b      *scripts
}

func newMember(t *testing.T) *member {
	s := lab.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), ReadTimeout: requestTimeout, WriteTimeout: requestTimeout})
	t.Cleanup(func() { _ = client.Close() })
	b, err := New([]*redis.Client{client}, &Options{NoRestartGuard: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	m := &member{t: t, server: s, node: b.nodes[0]}
	m.prepared()
	return m
}

func (m *member) prepared() run {
	r, err := m.askWhoItIs(m.t.Context())
	require.NoError(m.t, err)
	require.NotEmpty(m.t, r.id)
	m.b, err = m.prepare(m.t.Context(), r)
	require.NoError(m.t, err)
	return r
}

// fenced is a claim with a token.
type fenced struct {
	claim
	token uint64
}

func claimOf(name, value string, token uint64) fenced {
	return fenced{claim{keys: redisconn.KeysOf(name, value, "", ""), ttl: time.Minute, lasts: time.Minute,
		fenced: true, waiting: true}, token}
}

func of(value string, token uint64) fenced { return claimOf("x", value, token) }

// tries gives a vote as long as a busy machine may take.
const tries = 5 * time.Second

func (m *member) tryVote(b *scripts, c fenced) (vote, error) {
	var v vote
	var err error
	done := make(chan struct{})
	m.vote(b, &c.claim, c.voteArgs(), tries, func(said vote, r reply) {
		v, err = said, r.err
		close(done)
	})
	<-done
	return v, err
}

func (m *member) votes(c fenced) vote {
	m.t.Helper()
	v, err := m.tryVote(m.b, c)
	require.NoError(m.t, err)
	return v
}

func (m *member) says(ask func(answered func(reply))) redisconn.State {
	m.t.Helper()
	r := await(ask)
	require.NoError(m.t, r.err)
	return r.state
}

func (m *member) raises(c fenced) redisconn.State {
	m.t.Helper()
	return m.says(func(f func(reply)) { m.raise(&c.claim, c.token, c.token, tries, f) })
}

func (m *member) renews(c fenced) redisconn.State {
	m.t.Helper()
	return m.says(func(f func(reply)) { m.renew(&c.claim, c.token, c.token, tries, f) })
}

func (m *member) repairs(c fenced) redisconn.State {
	m.t.Helper()
	return m.says(func(f func(reply)) { m.repair(m.b, &c.claim, c.token, c.token, c.ttl, tries, f) })
}

func (m *member) releases(c fenced, void time.Duration) redisconn.State {
	m.t.Helper()
	return m.says(func(f func(reply)) { m.release(&c.claim, void, tries, f) })
}

// The restart guard goes by the last vote: a server that was restarted has not
// been up for longer. An answer that is late must not make that earlier.
func TestALateAnswerDoesNotMoveTheLastVoteBack(t *testing.T) {
	n := &node{}
	last := time.Now()
	n.note(opVote, last, nil)
	n.note(opVote, last.Add(-time.Second), nil)
	assert.Equal(t, last, n.voted)
	n.note(opRenew, last.Add(2*time.Second), nil)
	n.note(opVote, last.Add(3*time.Second), errNoAnswer)
	assert.Equal(t, last, n.voted)
	n.note(opVote, last.Add(time.Second), nil)
	assert.Equal(t, last.Add(time.Second), n.voted)
}

// The second phase: no counter is raised to where another has raised it, nor
// under it; the same one may do so again.
// asking is a handler of logs that asks the node.
type asking struct {
	slog.Handler
	n *node
}

func (a asking) Handle(context.Context, slog.Record) error { return a.n.why() }

// The user's Logger may call what needs the node.
func TestALoggerMayAskTheNode(t *testing.T) {
	n := &node{b: &Backend{}}
	n.b.opts.Logger = slog.New(asking{slog.Default().Handler(), n})
	told := make(chan struct{})
	go func() {
		defer close(told)
		n.note(opVote, time.Now(), &redisconn.Error{Refused: true, Err: errBusy})
	}()
	select {
	case <-told:
		assert.True(t, n.warned.Load())
	case <-time.After(10 * time.Second):
		t.Fatal("the Logger waits for who calls it")
	}
}

func TestQuorumCounterIsRaisedByOneOwnerOnly(t *testing.T) {
	q := newMember(t)
	a := q.votes(of("a", 0))
	require.True(t, a.granted)
	require.NotZero(t, a.token)
	assert.Equal(t, redisconn.Mine, q.raises(of("a", a.token)))
	assert.Equal(t, redisconn.Mine, q.raises(of("a", a.token)), "a repeated request")
	again := q.votes(of("a", 0))
	assert.True(t, again.raised)
	assert.Equal(t, a.token, again.token)
	assert.Equal(t, redisconn.Theirs, q.raises(of("b", a.token+1)))
	assert.Equal(t, redisconn.Mine, q.releases(of("a", 0), 0))
	assert.Equal(t, redisconn.Gone, q.raises(of("a", a.token)))

	b := q.votes(of("b", 0))
	assert.Greater(t, b.token, a.token)
	assert.Equal(t, redisconn.Overtaken, q.raises(of("b", a.token)), "another's token")
	assert.Equal(t, redisconn.Overtaken, q.raises(of("b", a.token-1)))
	assert.Equal(t, redisconn.Mine, q.raises(of("b", b.token)))

	// A key that came to A late, by a vote or a repair of before, is no lease.
	q.releases(of("b", 0), 0)
	assert.Equal(t, redisconn.Overtaken, q.repairs(of("a", a.token)))
	assert.Equal(t, redisconn.Gone, q.renews(of("a", a.token)))
	require.True(t, q.votes(of("a", 0)).granted)
	assert.Equal(t, redisconn.Overtaken, q.renews(of("a", a.token)))
}

// A renewal that was sent before RaiseToken and arrives after it has lost nothing.
func TestALateRenewalDoesNotLoseToItsOwnRaisedToken(t *testing.T) {
	q := newMember(t)
	a := of("a", 0)
	a.token = q.votes(a).token
	require.Equal(t, redisconn.Mine, q.says(func(f func(reply)) {
		q.raise(&a.claim, a.token, a.token+1000, tries, f)
	}))
	counter := q.server.MustDo(t, "GET", redisconn.LockKey("x")+":quorum")
	assert.Equal(t, redisconn.Mine, q.renews(a))
	assert.Equal(t, redisconn.Mine, q.raises(a))
	assert.Equal(t, redisconn.Mine, q.repairs(a))
	assert.Equal(t, counter, q.server.MustDo(t, "GET", redisconn.LockKey("x")+":quorum"),
		"a counter is never lowered")
}

// Requests may overtake each other: one that asks for less (MinHold) takes nothing from one that asked for more.
func TestNoRequestShortensAVote(t *testing.T) {
	q := newMember(t)
	short := of("a", 0)
	short.token = q.votes(short).token
	long := short
	long.ttl, long.lasts = time.Hour, time.Hour
	for what, ask := range map[string]func(fenced){
		"vote":   func(c fenced) { require.NotZero(t, q.votes(c)) },
		"raised": func(c fenced) { require.Equal(t, redisconn.Mine, q.raises(c)); q.votes(c) },
		"renew":  func(c fenced) { require.Equal(t, redisconn.Mine, q.renews(c)) },
		"repair": func(c fenced) { require.Equal(t, redisconn.Mine, q.repairs(c)) },
	} {
		q.server.MustDo(t, "PEXPIRE", redisconn.LockKey("x"), 1000)
		ask(long)
		assert.Greater(t, q.server.TTL(t, redisconn.LockKey("x")), 50*time.Minute, what)
		ask(short)
		assert.Greater(t, q.server.TTL(t, redisconn.LockKey("x")), 50*time.Minute, what)
	}
	q.votes(of("waits", 0))
	q.server.MustDo(t, "PEXPIRE", redisconn.LockKey("x"), 1000)
	q.votes(of("waits as well", 0))
	assert.Greater(t, q.server.TTL(t, redisconn.LockKey("x")+":wait"), 50*time.Minute, "the note of the first")
	q.releases(long, time.Hour)
	q.releases(long, time.Minute)
	assert.Greater(t, q.server.TTL(t, redisconn.LockKey("x")+":void:a"), 50*time.Minute, "it stays void as long")
}

func TestQuorumRepair(t *testing.T) {
	q := newMember(t)
	a := of("a", q.votes(of("a", 0)).token)
	require.Equal(t, redisconn.Mine, q.raises(a))
	q.server.MustDo(t, "FLUSHALL") // the counter too
	assert.Equal(t, redisconn.Gone, q.renews(a), "a renewal acquires nothing (R12)")
	assert.Nil(t, q.server.MustDo(t, "GET", redisconn.LockKey("x")))
	assert.Equal(t, redisconn.Mine, q.repairs(a))
	assert.Equal(t, redisconn.Mine, q.renews(a))
	assert.Greater(t, q.votes(of("a", 0)).token, a.token-1)

	q.releases(a, time.Minute)
	assert.Equal(t, redisconn.Gone, q.repairs(a), "released: a late repair finds it void")
	assert.True(t, q.votes(a).void)
	assert.Nil(t, q.server.MustDo(t, "GET", redisconn.LockKey("x")))
	broken := of("broken", q.votes(of("broken", 0)).token)
	require.NoError(t, q.node.b.Break(t.Context(), driver.State{Name: "x", Holder: "broken"}))
	assert.Equal(t, redisconn.Gone, q.repairs(broken), "it stays so")
	require.True(t, q.votes(of("b", 0)).granted)
	assert.Equal(t, redisconn.Theirs, q.renews(a))
	c := of("c", 1)
	assert.Equal(t, redisconn.Theirs, q.repairs(c))
	assert.Equal(t, redisconn.Theirs, q.releases(c, 0))
}

// A vote that was given up may arrive after a repair and the release: it finds its value void.
func TestAVoteAfterRepairAndReleaseFindsItsValueVoid(t *testing.T) {
	for _, s := range []site{{left: late}, {asking: true}} {
		m := newMember(t)
		h := newHold(m.node.b, of("o", 0).claim)
		h.stage, h.until, h.sites[0], m.scripts = held, time.Now().Add(time.Minute), s, m.b
		h.repairOne(0)
		require.NotNil(t, m.server.MustDo(t, "GET", redisconn.LockKey("x")))
		h.answers.put(answer{to: toVote, reply: reply{err: redisconn.ErrTimeout}}) // not waited for any longer
		require.NoError(t, h.Release(t.Context()))
		assert.True(t, m.votes(of("o", 0)).void)
	}
}

// A server that was restarted does not vote by scripts of before, and is never
// sent the text; nor is it repaired.
func TestQuorumBallotIsOfOneRun(t *testing.T) {
	q := newMember(t)
	before := q.b
	first := q.prepared()
	q.server.Restart(t)
	require.Eventually(t, func() bool {
		_, err := q.askWhoItIs(t.Context())
		return err == nil
	}, 30*time.Second, 10*time.Millisecond)
	_, err := q.tryVote(before, of("a", 0))
	require.ErrorIs(t, err, errRestarted)
	a := of("a", 1)
	got := await(func(f func(reply)) { q.repair(before, &a.claim, a.token, a.token, a.ttl, tries, f) })
	require.ErrorIs(t, got.err, errRestarted)
	assert.Nil(t, q.server.MustDo(t, "GET", redisconn.LockKey("x")))
	_, err = q.prepare(t.Context(), first)
	require.ErrorIs(t, err, errRestarted, "another run answers")
	_, err = q.tryVote(before, of("a", 0))
	require.ErrorIs(t, err, errRestarted, "a look that a restart overtook has left scripts of the run before")
	assert.Nil(t, q.server.MustDo(t, "GET", redisconn.RunsKey),
		"a look that a restart overtook has left a note of the run before")
	assert.NotEqual(t, first.id, q.prepared().id)
	assert.True(t, q.votes(of("a", 0)).granted)
}

// Votes of several callers go together, each as if it were alone.
func TestVotesShareScriptCalls(t *testing.T) {
	const n = 100
	q := newMember(t)
	// What the last of the names has behind it.
	require.True(t, q.votes(claimOf("held", "another", 0)).granted)
	raised := claimOf("raised", "me", 0)
	raised.token = q.votes(raised).token
	require.Equal(t, redisconn.Mine, q.raises(raised))
	q.releases(claimOf("void", "me", 0), time.Minute)
	q.server.MustDo(t, "SET", redisconn.LockKey("full")+":quorum", "9007199254740991 x")
	q.server.MustDo(t, "RPUSH", redisconn.LockKey("foreign"), "a list")

	names := []string{"held", "raised", "void", "full", "foreign"}
	for i := range n {
		names = append(names, strconv.Itoa(i))
	}
	votes, errs := make([]vote, len(names)), make([]error, len(names))
	calls := q.server.AllAtOnce(t, len(names), func(i int) {
		c := claimOf(names[i], "me", 0)
		c.waiting = i%2 == 0 // for the others the note is not asked for
		votes[i], errs[i] = q.tryVote(q.b, c)
	})
	assert.Less(t, calls, n/2)
	assert.Positive(t, votes[0].left)
	assert.Equal(t, "another", votes[0].holder)
	assert.Equal(t, int64(1), q.server.MustDo(t, "EXISTS", redisconn.LockKey("held")+":wait"))
	assert.True(t, votes[1].granted && votes[1].raised)
	assert.Equal(t, raised.token, votes[1].token)
	assert.True(t, votes[2].void)
	assert.True(t, hopeless(errs[3]))
	assert.Equal(t, int64(0), q.server.MustDo(t, "EXISTS", redisconn.LockKey("full")))
	assert.True(t, votes[4].foreign)
	for i, v := range votes[len(names)-n:] {
		assert.NoError(t, errs[len(names)-n+i])
		assert.True(t, v.granted)
		assert.NotZero(t, v.token)
		assert.Equal(t, "me", q.server.MustDo(t, "GET", redisconn.LockKey(strconv.Itoa(i))))
	}
}

// A server that was restarted takes none of many votes before somebody has looked at it.
func TestARestartedServerRefusesVotesThatComeTogether(t *testing.T) {
	q := newMember(t)
	q.server.Restart(t)
	q.server.AllAtOnce(t, 64, func(i int) {
		_, err := q.tryVote(q.b, claimOf(strconv.Itoa(i), "me", 0))
		assert.Error(t, err)
	})
	assert.Equal(t, int64(0), q.server.MustDo(t, "DBSIZE"),
		"a vote of a server that has forgotten what it had granted")
}

// around is a hook that is told of the first command of each pipeline, before and after it is sent.
type around struct{ before, after func(first redis.Cmder) }

func (around) DialHook(next redis.DialHook) redis.DialHook { return next }

func (around) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h around) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.before(cmds[0])
		defer h.after(cmds[0])
		return next(ctx, cmds)
	}
}

// A server that may keep its scripts over a restart does not vote, and trying again is no use.
func TestAServerThatIsTooOldDoesNotVote(t *testing.T) {
	q := newMember(t)
	q.conn.Client().(*redis.Client).AddHook(around{func(redis.Cmder) {}, func(first redis.Cmder) {
		if info, ok := first.(*redis.StringCmd); ok {
			info.SetVal(regexp.MustCompile(`redis_version:\S+`).ReplaceAllString(info.Val(), "redis_version:6.2.14"))
		}
	}})
	_, err := q.identify(t.Context())
	require.ErrorContains(t, err, "redis 6.2.14 is too old")
	assert.True(t, hopeless(err))
}

// A server that is restarted after it has said which run it is gets neither the
// scripts nor the note of that run: it would vote for locks that it has forgotten,
// and pass for a run that has kept its data.
func TestABallotAndItsNoteGoToTheRunThatWasAsked(t *testing.T) {
	q := newMember(t)
	r, err := q.askWhoItIs(t.Context())
	require.NoError(t, err)
	r.durable = true
	q.server.MustDo(t, "DEL", redisconn.RunsKey)
	client := q.conn.Client().(*redis.Client)
	var once sync.Once
	client.AddHook(around{func(first redis.Cmder) { // just before scripts are loaded
		if first.Name() == "script" {
			once.Do(func() { q.server.Restart(t) })
		}
	}, func(redis.Cmder) {}})
	_, err = q.prepare(t.Context(), r)
	require.Error(t, err)
	assert.Nil(t, q.server.MustDo(t, "GET", redisconn.RunsKey),
		"the next run would pass for one that has kept its data")
	b := q.newScripts(r, scriptText(r, voteText), "")
	exists, err := client.ScriptExists(t.Context(), fmt.Sprintf("%x", sha1.Sum([]byte(b.vote.Text())))).Result()
	require.NoError(t, err)
	assert.Equal(t, []bool{false}, exists)
}

// A release that waited in the queue for longer than its answer may take, and then went out on a
// connection that is silent, is sent on another: only the time on its way counts (R21, R22).
func TestAReleaseThatHadToWaitIsSentAgain(t *testing.T) {
	t.Parallel()
	lab.NeedPause(t)
	server := lab.StartRedis(t)
	p := lab.StartProxy(t, server.Addr())
	client := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1, ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = client.Close() })
	b, err := New([]*redis.Client{client}, &Options{NoRestartGuard: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	conn, err := redisconn.New(client, time.Minute)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	n := newNode(b, 0, conn)
	const limit = 3 * time.Second // longer than it takes to call a connection silent here
	release := func(name string) <-chan reply {
		over := make(chan reply, 1)
		c := claimOf(name, "me", 1)
		n.release(&c.claim, 0, limit, func(r reply) { over <- r })
		return over
	}
	require.NoError(t, (<-release("warm")).err)
	for range 5 {
		server.Pause()
		for full := false; !full; { // as many are on their way as may be
			k := redisconn.KeysOf("before", "me", "", "")
			waits := n.ask(conn.ReleaseCall(n.releaseScript, &k, 0), time.Minute,
				func(c *redisconn.Call) { _ = n.over(c, nil) })
			time.Sleep(50 * time.Millisecond)
			full = n.withdraw(waits)
		}
		over := release("x")
		time.Sleep(limit)
		p.OnRequest("{x}", func(l *lab.Link) { l.Replies(lab.Drop) })
		resumed := time.Now()
		server.Resume()
		got := <-over
		if got.sent.Before(resumed) || got.err == nil && !got.repeated {
			continue // it did not have to wait, or was answered
		}
		require.NoError(t, got.err)
		return
	}
	t.Skip("it never had to wait for a silent connection")
}
