package single

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisconn"
)

// What follows searches through all that can happen to some clients and a server, and not through
// what a scheduler happens to do. The clients are a model. The server is a real one, with the real
// scripts: each request is carried out there on each state in which it can arrive, once.
//
// Requests are repeated, arrive late or never, and their replies are lost. Leases end and keys expire
// at any moment, but no key before the lease for which it was set is over for its holder. The clock
// stands still or is set back. Once the server is lost, and another goes on with its data of some
// moment before: from then on two may hold, but tokens go on rising. The search promises that at no
// other time two leases are valid; that each token is above those of all holders before; that what
// was released or taken back is never there again; and that every key but the counter expires.

// attempts is the most that there are in a search.
const attempts = 4

// The phases of an attempt.
const (
	sIdle     uint8 = iota
	sAsking         // waits for the answer to its acquire
	sAwaiting       // waits for what the attempt before passes on to it
	sHeld
	sPassing   // passes the lock on to the next attempt
	sReleasing // waits for the answer to its release
	sUndoing   // is being taken back
	sOver
)

type sAttempt struct {
	phase, acquires, passes, releases uint8 // the last three are requests on their way
	repeated, passAgain, again        bool  // its acquire, pass, release was sent twice
	expired                           bool  // the lease counted from its request is over
	settled                           bool  // it was told that nothing is left
	early                             uint8 // the token that it drew before it asked: a mistake
}

// sStore is what the server has.
type sStore struct {
	lock, counter string
	line          string // the clients that wait, by letter
	voids         [attempts]bool
}

type sState struct {
	store, replica              sStore
	now, last                   int // the clock, and the last token of a holder
	attempt                     [attempts]sAttempt
	copied, failedOver, setBack bool
	repeats                     int // requests that were sent twice
}

// sModel is which attempts there are: each has the letter of its client, small if it does not wait.
// An attempt passes the lock on to the next one if that is of the same client.
type sModel struct {
	t       *testing.T
	clients string
	quiet   bool // without the loss of the server, and without steps of the clock
	repeats int  // how many requests are sent twice

	early bool // a mistake: the token is drawn by a request before the acquire
	cut   bool // a mistake: the counter is raised by a second request, and the connection can break between

	admin *redis.Client
	nodes map[byte]*Backend
	known map[sRequest]sResult
	fail  string
}

type sRequest struct {
	kind    string
	attempt int
	now     int
	store   sStore
}

type sResult struct {
	answer answer
	state  redisconn.State
	store  sStore
}

func newModel(t *testing.T, clients string, mistake ...string) *sModel {
	addr := lab.StartRedis(t).Addr()
	m := &sModel{t: t, clients: clients, admin: redis.NewClient(&redis.Options{Addr: addr}),
		nodes: map[byte]*Backend{}, known: map[sRequest]sResult{}}
	for _, c := range strings.ToUpper(clients) {
		if m.nodes[byte(c)] == nil {
			node := newNode(t, redis.NewClient(&redis.Options{Addr: addr}))
			changed := len(mistake) == 0
			alter(node.server, func(text string) string {
				text = strings.ReplaceAll(text, "redis.call('TIME')", "{0, tonumber(redis.call('GET', 'now'))}")
				for i := 0; i < len(mistake); i += 2 {
					changed = changed || strings.Contains(text, mistake[i])
					text = strings.ReplaceAll(text, mistake[i], mistake[i+1])
				}
				return text
			})
			require.True(t, changed, "the scripts have changed, and not the mistake")
			m.nodes[byte(c)] = node
		}
	}
	return m
}

// alter changes the texts of the scripts.
func alter(s *server, change func(text string) string) {
	for _, script := range []**redisconn.Script{&s.acquireScript, &s.passScript, &s.releaseScript} {
		*script = redisconn.NewScript(change((*script).Text()))
	}
}

func (m *sModel) client(i int) byte { return strings.ToUpper(m.clients)[i] }

// ownerOf is the attempt whose the lock is; -1: nobody's.
func ownerOf(lock string) int {
	i, err := strconv.Atoi(readValue(lock).owner)
	if err != nil {
		return -1
	}
	return i
}

// carryOut has the server do what a request of attempt i asks for.
func (m *sModel) carryOut(s *sState, kind string, i int, do func(*Backend, *sResult) error) sResult {
	key := sRequest{kind, i, s.now, s.store}
	r, known := m.known[key]
	if known {
		return r
	}
	lock, ctx := redisconn.LockKey("n"), m.t.Context()
	void := func(i int) string { return lock + ":void:" + strconv.Itoa(i) }
	pipe := m.admin.Pipeline()
	put := func(key, value string, life time.Duration) {
		if value != "" {
			pipe.Set(ctx, key, value, life)
		}
	}
	pipe.FlushAll(ctx)
	put("now", strconv.Itoa(s.now), 0)
	put(lock, s.store.lock, sTTL)
	put(redisconn.TokensKey, s.store.counter, 0)
	line := ""
	for _, c := range s.store.line {
		line += m.nodes[byte(c)].server.me + "=10;"
	}
	put(lock+":wait", line, sTTL)
	for j, isVoid := range s.store.voids {
		if isVoid {
			put(void(j), "1", sTTL)
		}
	}
	_, err := pipe.Exec(ctx)
	require.NoError(m.t, err)

	require.NoError(m.t, do(m.nodes[m.client(i)], &r))

	there := pipe.Keys(ctx, "*")
	keys := append(make([]string, 0, 8), lock, redisconn.TokensKey, lock+":wait")
	for j := range r.store.voids {
		keys = append(keys, void(j))
	}
	var values []*redis.StringCmd
	var lives []*redis.DurationCmd
	for _, key := range keys {
		values, lives = append(values, pipe.Get(ctx, key)), append(lives, pipe.PTTL(ctx, key))
	}
	_, _ = pipe.Exec(ctx)
	left := 1 // now
	for j, v := range values {
		if v.Err() != nil {
			continue
		}
		left++
		if lives[j].Val() < 0 && keys[j] != redisconn.TokensKey {
			m.fail = keys[j] + " is left for ever"
		}
		if j >= 3 {
			r.store.voids[j-3] = true
		}
	}
	require.Len(m.t, there.Val(), left, "a key of which the search does not know")
	r.store.lock, r.store.counter = values[0].Val(), values[1].Val()
	for part := range strings.SplitSeq(values[2].Val(), ";") {
		name, _, _ := strings.Cut(part, "=")
		for c, node := range m.nodes {
			if node.server.me == name {
				r.store.line += string(c)
			}
		}
	}
	m.known[key] = r
	return r
}

const sTTL = time.Hour

func (m *sModel) acquire(s *sState, i int) sResult {
	return m.carryOut(s, "acquire", i, func(n *Backend, r *sResult) (err error) {
		r.answer, err = n.server.acquire(m.t.Context(), keys("n", strconv.Itoa(i)),
			request{ttl: sTTL, waiting: m.clients[i] == m.client(i)})
		return err
	})
}

func (m *sModel) pass(s *sState, i int) sResult {
	return m.carryOut(s, "pass", i, func(n *Backend, r *sResult) (err error) {
		r.answer, err = n.server.pass(m.t.Context(), keys("n", strconv.Itoa(i)),
			keys("n", strconv.Itoa(i+1)), sTTL, true)
		return err
	})
}

// release is what a hold does: a take-back where a copy of its acquire may be on its way.
func (m *sModel) release(s *sState, i int) sResult {
	a := &s.attempt[i]
	if a.phase == sUndoing || a.repeated {
		return m.carryOut(s, "take back", i, func(n *Backend, r *sResult) (err error) {
			r.state, err = n.server.takeBack(m.t.Context(), keys("n", strconv.Itoa(i)), sTTL)
			return err
		})
	}
	return m.carryOut(s, "release", i, func(n *Backend, r *sResult) (err error) {
		r.state, err = n.server.release(m.t.Context(), keys("n", strconv.Itoa(i)))
		return err
	})
}

// granted makes a holder of attempt i, if its lease is not over by now.
func (m *sModel) granted(s *sState, i int, token uint64) {
	a := &s.attempt[i]
	if a.expired {
		a.phase, a.releases = sUndoing, a.releases+1
		return
	}
	if m.early {
		token = uint64(a.early)
	}
	a.phase = sHeld
	if int(token) <= s.last {
		m.fail = fmt.Sprintf("token %d after token %d", token, s.last)
	}
	s.last = int(token)
}

// check looks at a state, and forgets what makes no difference any more.
func (m *sModel) check(s *sState) {
	valid := 0
	for i := range m.clients {
		a := &s.attempt[i]
		if a.phase == sOver && a.acquires == 0 && a.passes == 0 && a.releases == 0 {
			*a = sAttempt{phase: sOver, expired: a.expired, settled: a.settled}
		}
	}
	for i := range m.clients {
		a := &s.attempt[i]
		if (a.phase == sHeld) && !a.expired {
			valid++
		}
		if a.settled && ownerOf(s.store.lock) == i && !s.failedOver {
			m.fail = fmt.Sprintf("attempt %d is settled, and has the lock", i)
		}
	}
	if valid > 1 && !s.failedOver {
		m.fail = "two holders"
	}
}

// steps calls next for every state that can follow s.
func (m *sModel) steps(s sState, next func(what string, s sState)) {
	do := func(what string, change func(*sState)) {
		t := s
		change(&t)
		next(what, t)
	}
	for i := range m.clients {
		m.attempt(s, i, func(what string, change func(*sState, *sAttempt)) {
			do(fmt.Sprintf("%c%d %s", m.client(i), i, what), func(s *sState) { change(s, &s.attempt[i]) })
		})
	}
	if owner := ownerOf(s.store.lock); s.store.lock != "" && (owner < 0 || s.attempt[owner].expired) {
		do("the key expires", func(s *sState) { s.store.lock = "" })
	}
	if s.store.line != "" {
		do("the line expires", func(s *sState) { s.store.line = "" })
	}
	if m.quiet {
		return
	}
	if s.now < 2 {
		do("time passes", func(s *sState) { s.now++ })
	}
	if !s.setBack && !s.failedOver && s.now > 0 {
		do("the clock is set back", func(s *sState) { s.now, s.setBack = 0, true })
	}
	if !s.copied {
		do("the replica is as far as this", func(s *sState) { s.replica, s.copied = s.store, true })
	}
	if !s.failedOver {
		do("fail-over", func(s *sState) {
			counter, _ := strconv.Atoi(s.store.counter)
			s.store, s.replica, s.copied, s.failedOver = s.replica, sStore{}, true, true
			s.now = max(s.now, counter, s.last) + 1
		})
	}
}

// attempt is what attempt i and its requests can do.
func (m *sModel) attempt(s sState, i int, do func(what string, change func(*sState, *sAttempt))) {
	a := s.attempt[i]
	before := i > 0 && m.client(i-1) == m.client(i)
	after := i+1 < len(m.clients) && m.client(i+1) == m.client(i)
	release := func(a *sAttempt, phase uint8) { a.phase, a.releases = phase, a.releases+1 }
	again := func(done bool, what string, change func(*sAttempt)) {
		if !done && s.repeats < m.repeats {
			do(what, func(s *sState, a *sAttempt) {
				s.repeats++
				change(a)
			})
		}
	}
	switch a.phase {
	case sIdle:
		if !before || s.attempt[i-1].phase >= sReleasing {
			do("asks", func(s *sState, a *sAttempt) {
				a.phase, a.acquires, a.expired = sAsking, 1, false
				if m.early {
					counter, _ := strconv.Atoi(s.store.counter)
					s.store.counter = strconv.Itoa(counter + 1)
					a.early = uint8(counter + 1)
				}
			})
		}
	case sAsking:
		again(a.repeated, "asks again", func(a *sAttempt) { a.acquires, a.repeated = a.acquires+1, true })
		do("gives up", func(_ *sState, a *sAttempt) { release(a, sUndoing) })
	case sHeld:
		do("releases", func(_ *sState, a *sAttempt) { release(a, sReleasing) })
		if after && !a.repeated && !a.expired && s.attempt[i+1].phase == sIdle {
			do("passes", func(s *sState, a *sAttempt) {
				a.phase, a.passes = sPassing, 1
				s.attempt[i+1].phase = sAwaiting
			})
		}
	case sPassing:
		again(a.passAgain, "passes again", func(a *sAttempt) { a.passes, a.passAgain = a.passes+1, true })
		do("gives up passing", func(s *sState, a *sAttempt) {
			release(a, sReleasing)
			release(&s.attempt[i+1], sUndoing)
		})
	case sReleasing, sUndoing:
		again(a.again, "releases again", func(a *sAttempt) { a.releases, a.again = a.releases+1, true })
	}
	if !a.expired && a.phase != sIdle && a.phase != sOver {
		do("lease ends", func(_ *sState, a *sAttempt) { a.expired = true })
	}
	if a.acquires > 0 {
		m.acquireArrives(i, a, do)
	}
	if a.passes > 0 {
		m.passArrives(i, a, do)
	}
	if a.releases > 0 {
		arrives := func(s *sState, a *sAttempt) {
			r := m.release(s, i)
			a.releases--
			s.store = r.store
		}
		do("its release arrives, the reply is lost", arrives)
		if a.phase == sReleasing || a.phase == sUndoing {
			do("its release arrives", func(s *sState, a *sAttempt) {
				arrives(s, a)
				a.phase, a.settled = sOver, true
			})
		}
	}
}

func (m *sModel) acquireArrives(i int, a sAttempt, do func(string, func(*sState, *sAttempt))) {
	arrives := func(s *sState, a *sAttempt) answer {
		r := m.acquire(s, i)
		a.acquires--
		s.store = r.store
		return r.answer
	}
	do("its acquire arrives, the reply is lost", func(s *sState, a *sAttempt) { arrives(s, a) })
	if m.cut {
		do("its acquire arrives, cut", func(s *sState, a *sAttempt) {
			counter := s.store.counter
			arrives(s, a)
			s.store.counter = counter
		})
	}
	if a.phase != sAsking {
		return
	}
	do("its acquire arrives", func(s *sState, a *sAttempt) {
		switch answer := arrives(s, a); {
		case answer.granted:
			m.granted(s, i, answer.token)
		case a.repeated:
			a.phase, a.releases = sUndoing, a.releases+1
		default:
			a.phase = sOver
		}
	})
}

func (m *sModel) passArrives(i int, a sAttempt, do func(string, func(*sState, *sAttempt))) {
	arrives := func(s *sState, a *sAttempt) answer {
		r := m.pass(s, i)
		a.passes--
		s.store = r.store
		return r.answer
	}
	do("its pass arrives, the reply is lost", func(s *sState, a *sAttempt) { arrives(s, a) })
	if a.phase != sPassing {
		return
	}
	do("its pass arrives", func(s *sState, a *sAttempt) {
		answer, next := arrives(s, a), &s.attempt[i+1]
		a.phase, a.settled = sOver, true
		switch {
		case answer.granted:
			m.granted(s, i+1, answer.token)
		default: // it is another's turn, or was lost: the next asks for itself
			*next = sAttempt{}
		}
	})
}

// search visits every state that can be reached, the nearest first, and returns how many
// there are, and how one gets to a broken promise.
func (m *sModel) search() (states int, broken string) {
	type from struct {
		state int
		what  string
	}
	order, seen, how := []sState{{}}, map[sState]struct{}{{}: {}}, []from{{}}
	for at := 0; at < len(order); at++ {
		m.steps(order[at], func(what string, s sState) {
			m.check(&s)
			if m.fail != "" && broken == "" {
				path := []string{what, m.fail}
				for j := at; j > 0; j = how[j].state {
					path = append([]string{how[j].what}, path...)
				}
				broken = strings.Join(path, "\n")
			}
			if _, known := seen[s]; !known && broken == "" {
				seen[s] = struct{}{}
				order, how = append(order, s), append(how, from{at, what})
			}
		})
		if broken != "" {
			break
		}
	}
	return len(order), broken
}

// Small letters do not wait. Where two attempts are one client's, the first passes on to the second.
func TestSearch(t *testing.T) {
	for _, c := range []struct {
		clients string
		repeats int
		quiet   bool
	}{{"AB", 0, false}, {"AB", 3, true}, {"AAB", 0, true}, {"ABc", 0, true}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			m := newModel(t, c.clients)
			m.quiet, m.repeats = c.quiet, c.repeats
			states, broken := m.search()
			assert.Empty(t, broken)
			assert.Greater(t, states, 10_000)
			t.Logf("%d states, %d requests", states, len(m.known))
		})
	}
}

// A search that does not find what is wrong proves nothing.
func TestSearchFindsMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		clients string
		change  []string // in the scripts: what, and by what
		model   func(*sModel)
		finds   string
	}{
		"a release does not compare": {"ABc", []string{
			"if not owns(call('MGET', KEYS[1])[1], ARGV[2]) then", "if not call('MGET', KEYS[1])[1] then"}, nil,
			"two holders"},
		"an acquire takes what is held": {"AB", []string{"'NX', 'PX', ttl", "'PX', ttl"}, nil, "two holders"},
		"a pass does not compare": {"AAB", []string{"if not owns(value, ARGV[1]) then", "if not value then"}, nil,
			"two holders"},
		"a value is not made void":    {"AB", []string{"if found[1 + i] then", "if false then"}, nil, "is settled"},
		"a next one is not made void": {"AAB", []string{"if found[2] then", "if false then"}, nil, "is settled"},
		"a lock does not expire":      {"AB", []string{"'NX', 'PX', ttl", "'NX'"}, nil, "left for ever"},
		"the clock is no floor":       {"AB", []string{"if token < now then", "if false then"}, nil, "after token"},
		"the counter is no floor": {"AB", []string{"(tonumber(counter or 0) or 0) + 1", "1"}, nil,
			"after token"},
		"a token from before the SET": {"AB", nil, func(m *sModel) { m.early = true }, "after token"},
		"the predecessor's token after a cut": {"AB", []string{
			"return {1, tonumber(string.sub(value, 1, 16))}", "return {1, tonumber(found[1] or 1)}"},
			func(m *sModel) { m.cut = true }, "after token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t, c.clients, c.change...)
			m.repeats, m.quiet = 1, len(c.clients) > 2
			if c.model != nil {
				c.model(m)
			}
			_, broken := m.search()
			assert.Contains(t, broken, c.finds)
		})
	}
}
