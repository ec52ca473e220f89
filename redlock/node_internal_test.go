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
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisnode"
)

// NodeState is what a Backend knows of one node.
type NodeState struct {
	Ready      bool // it may vote, as far as is known
	Sick       bool
	GuardedFor time.Duration
	InFlight   int
}

// Nodes returns the state of every node, in the order in which New was given them.
func (b *Backend) Nodes() (all []NodeState) {
	for _, n := range b.nodes {
		n.mu.Lock()
		all = append(all, NodeState{n.scripts != nil, n.sick(), max(0, time.Until(n.guardUntil)),
			int(n.inFlight.Load())})
		n.mu.Unlock()
	}
	return all
}

// member is one node of a quorum, asked synchronously.
type member struct {
	*node
	t      *testing.T
	server *lab.Redis
	b      *scripts
}

func newMember(t *testing.T) *member {
	server := lab.StartRedis(t)
	m := memberAt(t, server, server.Addr())
	m.prepared()
	return m
}

// memberAt is the only node of a Backend, which reaches the server at addr, and has not looked at it yet.
func memberAt(t *testing.T, server *lab.Redis, addr string) *member {
	client := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout})
	t.Cleanup(func() { _ = client.Close() })
	b, err := New([]*redis.Client{client}, &Options{NoRestartGuard: true, Fencing: true, NodeTimeout: 20 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return &member{t: t, server: server, node: b.nodes[0]}
}

func (m *member) prepared() run {
	r, err := m.askWhoItIs(m.t.Context())
	require.NoError(m.t, err)
	require.NotEmpty(m.t, r.id)
	m.b, err = m.prepare(m.t.Context(), r)
	require.NoError(m.t, err)
	return r
}

// holdOf is a hold of one node, with a token.
func (m *member) holdOf(name, value string, token uint64) *hold {
	return &hold{b: m.node.b, keys: redisnode.KeysOf(name, value, "", ""), ttl: time.Minute, lasts: time.Minute, waits: true,
		since: time.Now(), token: token, floor: token, places: make([]place, 1)}
}

func (m *member) of(value string, token uint64) *hold { return m.holdOf("x", value, token) }

// vote is a node's answer to a request for a vote.
type vote struct {
	token                          uint64
	holder                         string
	left                           time.Duration
	granted, raised, foreign, void bool
}

// asks puts a question, and waits for the answer.
func (m *member) asks(a *redisnode.Attempt) redisnode.Outcome {
	got := make(chan redisnode.Outcome, 1)
	m.ask(a, func(o redisnode.Outcome) { got <- o })
	o := <-got
	if o.Copies > 1 {
		time.Sleep(time.Second) // a copy that is under way has come by then: what follows is not to be mixed with it
	}
	return o
}

func (m *member) tryVote(b *scripts, h *hold) (v vote, err error) {
	o := m.asks(h.voteAttempt(b.vote))
	if o.Err != nil {
		return v, o.Err
	}
	switch a := o.Answer; verdictOf(o) {
	case yes:
		v = vote{granted: true, token: uint64(a.N), raised: a.Text != ""}
	case no:
		v = vote{holder: a.Text, left: redisnode.LeftOf(a.N)}
	case open, gone, failed, unasked:
		v = vote{void: a.Code == redisnode.Void, foreign: a.Code == redisnode.Foreign}
	}
	return v, nil
}

func (m *member) votes(h *hold) vote {
	m.t.Helper()
	v, err := m.tryVote(m.b, h)
	require.NoError(m.t, err)
	return v
}

func (m *member) says(a *redisnode.Attempt) redisnode.Code {
	m.t.Helper()
	o := m.asks(a)
	require.Nil(m.t, o.Err)
	return o.Answer.Code
}

func (m *member) raises(h *hold) redisnode.Code {
	m.t.Helper()
	return m.says(h.keepAttempt(m.keep, opRaise, h.ttl, 0))
}

func (m *member) renews(h *hold) redisnode.Code {
	m.t.Helper()
	return m.says(h.keepAttempt(m.keep, opRenew, h.ttl, 0))
}

func (m *member) repairs(h *hold) redisnode.Code {
	m.t.Helper()
	return m.says(h.keepAttempt(m.b.repair, opRepair, h.ttl, 0))
}

func (m *member) releases(h *hold, void time.Duration) redisnode.Code {
	m.t.Helper()
	a := m.Release(&h.keys, void)
	a.Op = opRelease
	return m.says(a)
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

// asking is a handler of logs that asks the node.
type asking struct {
	slog.Handler
	n *node
}

func (a asking) Handle(context.Context, slog.Record) error { return a.n.why() }

// The user's Logger may call what needs the node.
func TestALoggerMayAskTheNode(t *testing.T) {
	n := &node{Node: &redisnode.Node{}, b: &Backend{}}
	n.b.opts = Options{MaxTTL: time.Minute, Logger: slog.New(asking{slog.Default().Handler(), n})}
	told := make(chan struct{})
	go func() {
		defer close(told)
		n.note(opVote, time.Now(), &redisnode.Error{Refused: true, Err: errBusy})
		_ = n.guard(run{id: "now"}, time.Now())
	}()
	select {
	case <-told:
		assert.True(t, n.warned.Load())
	case <-time.After(10 * time.Second):
		t.Fatal("the Logger waits for who calls it")
	}
}

// How long the restart guard keeps a run out.
func TestTheGuard(t *testing.T) { synctest.Test(t, theGuard) }

func theGuard(t *testing.T) {
	const whole = 10 * time.Second
	durable := func(before string) run { return run{id: "now", durable: true, before: before} }
	up := func(uptime time.Duration) run { return run{id: "now", uptime: uptime} }
	for what, c := range map[string]struct {
		seen  run // before, a second ago
		now   run
		keeps time.Duration
	}{
		"new":                                {run{}, up(0), whole},
		"up for a whole second, or for none": {run{}, up(time.Second), whole},
		"up for long":                        {run{}, up(whole + time.Second), 0},
		"up for almost long enough":          {run{}, up(whole), time.Second},
		"the same run":                       {up(0), up(0), 0},
		"another that was up when the last was seen: its clock was stepped": {run{id: "before"}, up(time.Hour), whole},
		"it has the note of a run that was never seen":                      {run{}, durable("before"), 0},
		"it has no note: its disk was lost":                                 {run{}, durable(""), whole},
		"it has another's note than that of the run before": {run{id: "b", durable: true, noted: true},
			durable("a"), whole},
		"the run before was not durable":                     {run{id: "b"}, durable("b"), whole},
		"it has the note of the run before":                  {run{id: "b", durable: true, noted: true}, durable("b"), 0},
		"a run that has a note, and is not durable any more": {run{}, run{id: "now", before: "b"}, whole},
	} {
		n := &node{Node: &redisnode.Node{}, b: &Backend{}, run: c.seen}
		n.b.opts = Options{MaxTTL: whole, Logger: slog.New(slog.DiscardHandler)}
		now := time.Now()
		n.voted = now.Add(-time.Second)
		err := n.guard(c.now, now)
		assert.Equal(t, c.keeps > 0, err != nil, what)
		assert.Equal(t, c.keeps, max(0, time.Until(n.guardUntil)), what)
	}
}

// The second phase: no counter is raised to where another has raised it, nor under it; the same one may do so again.
func TestQuorumCounterIsRaisedByOneOwnerOnly(t *testing.T) {
	q := newMember(t)
	a := q.votes(q.of("a", 0))
	require.True(t, a.granted)
	require.NotZero(t, a.token)
	assert.Equal(t, redisnode.Done, q.raises(q.of("a", a.token)))
	assert.Equal(t, redisnode.Done, q.raises(q.of("a", a.token)), "a repeated request")
	again := q.votes(q.of("a", 0))
	assert.True(t, again.raised)
	assert.Equal(t, a.token, again.token)
	assert.Equal(t, redisnode.Theirs, q.raises(q.of("b", a.token+1)))
	assert.Equal(t, redisnode.Done, q.releases(q.of("a", 0), 0))
	assert.Equal(t, redisnode.Gone, q.raises(q.of("a", a.token)))

	b := q.votes(q.of("b", 0))
	assert.Greater(t, b.token, a.token)
	assert.Equal(t, redisnode.Overtaken, q.raises(q.of("b", a.token)), "another's token")
	assert.Equal(t, redisnode.Overtaken, q.raises(q.of("b", a.token-1)))
	assert.Equal(t, redisnode.Done, q.raises(q.of("b", b.token)))

	// A key that came to A late, by a vote or a repair of before, is no lease.
	q.releases(q.of("b", 0), 0)
	assert.Equal(t, redisnode.Overtaken, q.repairs(q.of("a", a.token)))
	assert.Equal(t, redisnode.Gone, q.renews(q.of("a", a.token)))
	require.True(t, q.votes(q.of("a", 0)).granted)
	assert.Equal(t, redisnode.Overtaken, q.renews(q.of("a", a.token)))
}

// A renewal that was sent before RaiseToken and arrives after it has lost nothing.
func TestALateRenewalDoesNotLoseToItsOwnRaisedToken(t *testing.T) {
	q := newMember(t)
	a := q.of("a", 0)
	a.token = q.votes(a).token
	require.Equal(t, redisnode.Done, q.says(a.keepAttempt(q.keep, opRaise, a.ttl, a.token+1000)))
	counter := q.server.MustDo(t, "GET", redisnode.LockKey("x")+":quorum")
	assert.Equal(t, redisnode.Done, q.renews(a))
	assert.Equal(t, redisnode.Done, q.raises(a))
	assert.Equal(t, redisnode.Done, q.repairs(a))
	assert.Equal(t, counter, q.server.MustDo(t, "GET", redisnode.LockKey("x")+":quorum"),
		"a counter is never lowered")
}

// A renewal that goes with a RaiseToken of the same lock, in one script, finds what that has made of the counter.
func TestRequestsForOneLockInOneScriptNeverLowerItsCounter(t *testing.T) {
	q := newMember(t)
	a := q.of("a", 0)
	a.token = q.votes(a).token // its second phase has not come here yet
	counter := redisnode.LockKey("x") + ":quorum"
	keys := []any{redisnode.LockKey("x"), counter}
	args := func(floor uint64) []any { return []any{"a", 60000, decimal(a.token), decimal(floor), a.asked()} }
	call := append([]any{"EVAL", q.keep.Text(), 4}, append(keys, keys...)...)
	call = append(append(append(call, ""), args(a.token+1000)...), args(a.token)...)
	require.Equal(t, []any{int64(1), int64(1)}, q.server.MustDo(t, call...))
	assert.Contains(t, q.server.MustDo(t, "GET", counter), decimal(a.token+1000))
}

// Requests may overtake each other: one that asks for less (MinHold) takes nothing from one that asked for more.
func TestNoRequestShortensAVote(t *testing.T) {
	q := newMember(t)
	short := q.of("a", 0)
	short.token = q.votes(short).token
	long := q.of("a", short.token)
	long.ttl, long.lasts = time.Hour, time.Hour
	for what, ask := range map[string]func(*hold){
		"vote":   func(c *hold) { require.NotZero(t, q.votes(c)) },
		"raised": func(c *hold) { require.Equal(t, redisnode.Done, q.raises(c)); q.votes(c) },
		"renew":  func(c *hold) { require.Equal(t, redisnode.Done, q.renews(c)) },
		"repair": func(c *hold) { require.Equal(t, redisnode.Done, q.repairs(c)) },
	} {
		q.server.MustDo(t, "PEXPIRE", redisnode.LockKey("x"), 60000)
		ask(long)
		assert.Greater(t, q.server.TTL(t, redisnode.LockKey("x")), 50*time.Minute, what)
		ask(short)
		assert.Greater(t, q.server.TTL(t, redisnode.LockKey("x")), 50*time.Minute, what)
	}
	q.votes(q.of("waits", 0))
	q.server.MustDo(t, "PEXPIRE", redisnode.LockKey("x"), 60000)
	q.votes(q.of("waits as well", 0))
	assert.Greater(t, q.server.TTL(t, redisnode.LockKey("x")+":wait"), 50*time.Minute, "the note of the first")
	q.releases(long, time.Hour)
	q.releases(long, time.Minute)
	assert.Greater(t, q.server.TTL(t, redisnode.LockKey("x")+":void:a"), 50*time.Minute, "it stays void as long")
}

// To all that may be late, a lock that is kept is another's. To others, it is that of the one who had it.
func TestAKeptLockIsNobodys(t *testing.T) {
	q := newMember(t)
	const owner = "0123456789012345 and more"
	a := q.of(owner, q.votes(q.of(owner, 0)).token)
	require.Equal(t, redisnode.Done, q.raises(a))
	counter := q.server.MustDo(t, "GET", redisnode.LockKey("x")+":quorum")
	keeps := func(keep time.Duration) redisnode.Code {
		c := q.Retain(&a.keys, keep, 0, &a.undo)
		c.Op = opRelease
		return q.says(c)
	}
	require.Equal(t, redisnode.Done, keeps(30*time.Second))
	assert.Equal(t, redisnode.Done, keeps(time.Hour))
	assert.Equal(t, redisnode.Done, keeps(time.Second))
	said := q.votes(a)
	assert.False(t, said.granted)
	assert.Equal(t, owner[:holderLength], said.holder, "nodes that keep it and nodes that do not yet have one holder")
	assert.Equal(t, redisnode.Theirs, q.renews(a))
	assert.Equal(t, redisnode.Theirs, q.repairs(a))
	assert.Equal(t, redisnode.Theirs, q.raises(a))
	assert.Equal(t, counter, q.server.MustDo(t, "GET", redisnode.LockKey("x")+":quorum"))
	assert.InDelta(t, 30*time.Second, q.server.TTL(t, redisnode.LockKey("x")), float64(10*time.Second))
	assert.Equal(t, redisnode.Theirs, q.releases(q.of("another", 0), 0))
	assert.Equal(t, redisnode.Done, q.releases(a, 0))
	assert.Equal(t, redisnode.Gone, keeps(time.Minute))
}

func TestQuorumRepair(t *testing.T) {
	q := newMember(t)
	a := q.of("a", q.votes(q.of("a", 0)).token)
	require.Equal(t, redisnode.Done, q.raises(a))
	q.server.MustDo(t, "FLUSHALL") // the counter too
	assert.Equal(t, redisnode.Gone, q.renews(a), "a renewal acquires nothing (R12)")
	assert.Nil(t, q.server.MustDo(t, "GET", redisnode.LockKey("x")))
	assert.Equal(t, redisnode.Done, q.repairs(a))
	assert.Equal(t, redisnode.Done, q.renews(a))
	assert.Greater(t, q.votes(q.of("a", 0)).token, a.token-1)

	q.releases(a, time.Minute)
	assert.Equal(t, redisnode.Void, q.repairs(a), "released: a late repair finds it void")
	assert.True(t, q.votes(a).void)
	assert.Nil(t, q.server.MustDo(t, "GET", redisnode.LockKey("x")))
	broken := q.of("broken", q.votes(q.of("broken", 0)).token)
	require.NoError(t, q.node.b.Break(t.Context(), driver.State{Name: "x", Holder: "broken"}))
	assert.Equal(t, redisnode.Void, q.repairs(broken), "it stays so")
	require.True(t, q.votes(q.of("b", 0)).granted)
	assert.Equal(t, redisnode.Theirs, q.renews(a))
	c := q.of("c", 1)
	assert.Equal(t, redisnode.Theirs, q.repairs(c))
	assert.Equal(t, redisnode.Theirs, q.releases(c, 0))
}

// A vote that was given up may arrive after a repair and the release: it finds its value void, for as long as MinHold.
func TestAVoteAfterRepairAndReleaseFindsItsValueVoid(t *testing.T) {
	for _, p := range []place{{left: late}, {vote: &redisnode.Attempt{}}} {
		m := newMember(t)
		h := m.of("o", 0)
		h.lasts = time.Hour
		h.stage, h.until, h.places[0], m.scripts = held, time.Now().Add(time.Minute), p, m.b
		h.give(0)
		require.Eventually(t, func() bool { return m.server.MustDo(t, "GET", redisnode.LockKey("x")) != nil },
			30*time.Second, time.Millisecond)
		require.NoError(t, h.Release(t.Context(), 0))
		assert.True(t, m.votes(m.of("o", 0)).void)
		assert.Greater(t, m.server.TTL(t, redisnode.LockKey("x")+":void:o"), 50*time.Minute)
		assert.Equal(t, redisnode.Void, m.repairs(m.of("o", 0)), "nor does a repair create the key")
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
	q.server.AllAtOnce(t, 64, func(i int) {
		_, err := q.tryVote(before, q.holdOf(strconv.Itoa(i), "me", 0))
		assert.ErrorIs(t, err, errRestarted)
	})
	a := q.of("a", 1)
	got := q.asks(a.keepAttempt(before.repair, opRepair, a.ttl, 0))
	require.ErrorIs(t, got.Err, errRestarted)
	assert.Equal(t, int64(0), q.server.MustDo(t, "DBSIZE"), "it has forgotten what it had granted")
	_, err := q.prepare(t.Context(), first)
	require.ErrorIs(t, err, errRestarted, "another run answers")
	_, err = q.tryVote(before, q.of("a", 0))
	require.ErrorIs(t, err, errRestarted, "a look that a restart overtook has left scripts of the run before")
	assert.Nil(t, q.server.MustDo(t, "GET", redisnode.RunsKey),
		"a look that a restart overtook has left a note of the run before")
	assert.NotEqual(t, first.id, q.prepared().id)
	assert.True(t, q.votes(q.of("a", 0)).granted)
}

// Votes of several callers go together, each as if it were alone.
func TestVotesShareScriptCalls(t *testing.T) {
	const n = 100
	q := newMember(t)
	// What the last of the names has behind it.
	require.True(t, q.votes(q.holdOf("held", "another", 0)).granted)
	raised := q.holdOf("raised", "me", 0)
	raised.token = q.votes(raised).token
	require.Equal(t, redisnode.Done, q.raises(raised))
	q.releases(q.holdOf("void", "me", 0), time.Minute)
	q.server.MustDo(t, "SET", redisnode.LockKey("full")+":quorum", "9007199254740991 x")
	q.server.MustDo(t, "RPUSH", redisnode.LockKey("foreign"), "a list")

	names := []string{"held", "raised", "void", "full", "foreign"}
	for i := range n {
		names = append(names, strconv.Itoa(i))
	}
	votes, errs := make([]vote, len(names)), make([]error, len(names))
	calls := q.server.AllAtOnce(t, len(names), func(i int) {
		c := q.holdOf(names[i], "me", 0)
		c.waits = i%2 == 0 // for the others the note is not asked for
		votes[i], errs[i] = q.tryVote(q.b, c)
	})
	assert.Less(t, calls, n/2)
	assert.Positive(t, votes[0].left)
	assert.Equal(t, "another", votes[0].holder)
	assert.Equal(t, int64(1), q.server.MustDo(t, "EXISTS", redisnode.LockKey("held")+":wait"))
	assert.True(t, votes[1].granted && votes[1].raised)
	assert.Equal(t, raised.token, votes[1].token)
	assert.True(t, votes[2].void)
	assert.True(t, hopeless(errs[3]))
	assert.Equal(t, int64(0), q.server.MustDo(t, "EXISTS", redisnode.LockKey("full")))
	assert.True(t, votes[4].foreign)
	for i, v := range votes[len(names)-n:] {
		assert.NoError(t, errs[len(names)-n+i])
		assert.True(t, v.granted)
		assert.NotZero(t, v.token)
		assert.Equal(t, "me", redisnode.ReadValue(q.server.MustDo(t, "GET", redisnode.LockKey(strconv.Itoa(i))).(string)).Owner)
	}
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
	q.Client().(*redis.Client).AddHook(around{func(redis.Cmder) {}, func(first redis.Cmder) {
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
	q.server.MustDo(t, "DEL", redisnode.RunsKey)
	client := q.Client().(*redis.Client)
	var once sync.Once
	restarted := make(chan struct{})
	client.AddHook(around{func(first redis.Cmder) { // just before scripts are loaded
		if first.Name() == "script" {
			once.Do(func() {
				defer close(restarted)
				q.server.Restart(t)
			})
		}
	}, func(redis.Cmder) {}})
	_, err = q.prepare(t.Context(), r)
	require.Error(t, err)
	<-restarted // which may take longer than the question may
	assert.Nil(t, q.server.MustDo(t, "GET", redisnode.RunsKey),
		"the next run would pass for one that has kept its data")
	b := q.newScripts(r)
	exists, err := client.ScriptExists(t.Context(), fmt.Sprintf("%x", sha1.Sum([]byte(b.vote.Text())))).Result()
	require.NoError(t, err)
	assert.Equal(t, []bool{false}, exists)
}
