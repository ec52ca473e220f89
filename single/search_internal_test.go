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
	"github.com/golockers/locker/internal/redisnode"
)

// What follows searches through all that can happen to some clients and a server, and not through
// what a scheduler happens to do. The clients are a model. The server is a real one, with the real
// scripts: each request is carried out there on each state in which it can arrive, once.
//
// Requests are repeated, arrive late or never, and their replies are lost. Leases end and keys expire
// at any moment, but no key before the lease for which it was set is over for its holder. The clock
// stands still or is set back. Once the server is lost, and another goes on with its data of some
// moment before: from then on two may hold, but tokens go on rising. The search promises that at no
// other time two leases are valid, unless sharers have them; that each token is above those of all
// holders before, and sharers who hold together have one; that what was released or taken back is never
// there again, and the note of a writer that has left neither; that a lock is kept as long as was
// asked; that a dead sharer does not stay with others, and the keys end with the last; and that every
// key but the counter expires.

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
	sNoted     // a writer that was refused, and has left its note
	sLeaving   // waits for the answer to its Leave
	sOver
	sKept // released, and kept
)

type sAttempt struct {
	phase, acquires, passes, releases uint8 // the last three are requests on their way
	repeated, passAgain, again        bool  // its acquire, pass, release was sent twice
	expired                           bool  // the lease counted from its request is over
	settled                           bool  // it was told that nothing is left
	early                             uint8 // the token that it drew before it asked: a mistake
	renewals                          uint8 // of a sharer: on their way
	renewed                           bool
	keeps                             uint8 // requests on their way that have the lock kept
	keptLong                          bool  // the time for which it is kept is over
}

// sStore is what the server has.
type sStore struct {
	lock, counter string
	line          string // the clients that wait, by letter
	voids         [attempts]bool
	sharers       [attempts]sLife
}

type sState struct {
	store, replica              sStore
	now, last                   int  // the clock, and the last token of a holder
	together                    bool // sharers have the last token
	attempt                     [attempts]sAttempt
	copied, failedOver, setBack bool
	repeats                     int // requests that were sent twice
}

// sModel is which attempts there are: each has the letter of its client, small if it does not wait.
// An attempt passes the lock on to the next one if that is of the same client.
type sModel struct {
	t       *testing.T
	clients string
	readers string // an r where the attempt asks to share
	keepers string // a k where the attempt has the lock kept when it releases it
	quiet   bool   // without the loss of the server, and without steps of the clock
	repeats int    // how many requests are sent twice

	early  bool // a mistake: the token is drawn by a request before the acquire
	cut    bool // a mistake: the counter is raised by a second request, and the connection can break between
	passed bool // a mistake: a lock is kept after a Pass of unknown outcome

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
	state  whose
	store  sStore
}

func newModel(t *testing.T, clients, readers string, mistake ...string) *sModel {
	addr := lab.StartRedis(t, withOnce).Addr() // a copy that comes late would change the state after
	m := &sModel{t: t, clients: clients, readers: readers, admin: redis.NewClient(&redis.Options{Addr: addr}),
		nodes: map[byte]*Backend{}, known: map[sRequest]sResult{}}
	for _, c := range strings.ToUpper(clients) {
		if m.nodes[byte(c)] == nil {
			node := newOnce(t, addr)
			changed := len(mistake) == 0
			woken, err := node.Notify(t.Context(), "n", func() {}) // it is there when it is its turn
			require.NoError(t, err)
			t.Cleanup(woken)
			alter(node, func(text string) string {
				text = strings.ReplaceAll(text, "call('TIME')", "{0, tonumber(redis.call('GET', 'now'))}")
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
func alter(b *Backend, change func(text string) string) {
	s, publish := &b.scripts, b.node.Publish
	b.scripts.acquire = redisnode.NewScript(3, b.me, change(s.acquire.Text()))
	b.scripts.share = redisnode.NewScript(3, b.me, change(s.share.Text()))
	b.scripts.pass = redisnode.NewScript(4, publish, change(s.pass.Text())).ForOne()
	b.scripts.stay = redisnode.NewScript(2, "", change(s.stay.Text()))
	b.scripts.leave = redisnode.NewScript(4, publish, change(s.leave.Text()))
	b.scripts.remain = redisnode.NewScript(3, "", change(s.remain.Text()))
	b.node.Alter(change)
}

func (m *sModel) client(i int) byte { return strings.ToUpper(m.clients)[i] }

// ownerOf is the attempt whose the lock is, or for which it is kept; -1: nobody's.
func ownerOf(lock string) (i int, kept bool) {
	lock, kept = strings.CutSuffix(lock, redisnode.Kept)
	i, err := strconv.Atoi(redisnode.ReadValue(lock).Owner)
	if err != nil {
		return -1, false
	}
	return i, kept
}

// mayEnd reports whether what the server has of the attempt may end by now.
func (a *sAttempt) mayEnd(kept bool) bool { return kept && a.keptLong || !kept && a.expired }

// carryOut has the server do what a request of attempt i asks for.
func (m *sModel) carryOut(s *sState, kind string, i int, do func(*Backend, *sResult) error) sResult {
	key := sRequest{kind, i, s.now, s.store}
	r, known := m.known[key]
	if known {
		return r
	}
	lock, ctx := redisnode.LockKey("n"), m.t.Context()
	void := func(i int) string { return lock + ":void:" + strconv.Itoa(i) }
	pipe := m.admin.Pipeline()
	put := func(key, value string, life time.Duration) {
		if value != "" {
			pipe.Set(ctx, key, value, life)
		}
	}
	pipe.FlushAll(ctx)
	put("now", strconv.Itoa(s.now), 0)
	put(lock, s.store.lock, s.store.lasts())
	put(redisnode.TokensKey, s.store.counter, 0)
	line := ""
	for _, c := range s.store.line {
		line += m.nodes[byte(c)].me + ";"
	}
	put(lock+":wait", line, sTTL)
	for j, isVoid := range s.store.voids {
		if isVoid {
			put(void(j), "1", sTTL)
		}
		if life := s.store.sharers[j]; life != sAbsent {
			pipe.ZAdd(ctx, lock+":shared", redis.Z{Score: life.ends(j), Member: life.member(j)})
			pipe.PExpire(ctx, lock+":shared", s.store.lasts())
		}
	}
	_, err := pipe.Exec(ctx)
	require.NoError(m.t, err)

	require.NoError(m.t, do(m.nodes[m.client(i)], &r))

	there := pipe.Keys(ctx, "*")
	keys := append(make([]string, 0, 8), lock, redisnode.TokensKey, lock+":wait")
	for j := range r.store.voids {
		keys = append(keys, void(j))
	}
	var values []*redis.StringCmd
	var lives []*redis.DurationCmd
	for _, key := range keys {
		values, lives = append(values, pipe.Get(ctx, key)), append(lives, pipe.PTTL(ctx, key))
	}
	sharers, life := pipe.ZRangeWithScores(ctx, lock+":shared", 0, -1), pipe.PTTL(ctx, lock+":shared")
	_, _ = pipe.Exec(ctx)
	left := 1 // now
	if len(sharers.Val()) > 0 {
		left++
	}
	for j, v := range values {
		if v.Err() != nil {
			continue
		}
		left++
		if lives[j].Val() < 0 && keys[j] != redisnode.TokensKey {
			m.fail = keys[j] + " is left for ever"
		}
		if j >= 3 {
			r.store.voids[j-3] = true
		}
	}
	require.Len(m.t, there.Val(), left, "a key of which the search does not know")
	r.store.lock, r.store.counter = values[0].Val(), values[1].Val()
	m.readSharers(&r.store, sharers.Val(), lives[0].Val(), life.Val())
	for part := range strings.SplitSeq(values[2].Val(), ";") {
		for c, node := range m.nodes {
			if node.me == part {
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
		r.answer, err = on(n).acquire(m.t.Context(), keys("n", strconv.Itoa(i)),
			request{ttl: ttlOf(i), waiting: m.clients[i] == m.client(i), shared: m.reads(i)})
		return err
	})
}

func (m *sModel) pass(s *sState, i int) sResult {
	return m.carryOut(s, "pass", i, func(n *Backend, r *sResult) (err error) {
		r.answer, err = on(n).pass(m.t.Context(), keys("n", strconv.Itoa(i)),
			keys("n", strconv.Itoa(i+1)), sTTL, true)
		return err
	})
}

// release is what a hold does: a take-back where a copy of its acquire may be on its way.
func (m *sModel) release(s *sState, i int) sResult {
	a := &s.attempt[i]
	undo := a.phase == sUndoing || a.repeated
	if m.reads(i) || a.phase == sLeaving {
		return m.leave(s, i, undo)
	} else if undo {
		return m.carryOut(s, "take back", i, func(n *Backend, r *sResult) (err error) {
			k := keys("n", strconv.Itoa(i))
			if r.state, err = on(n).release(m.t.Context(), k, false, sTTL); err == nil {
				_, err = on(n).release(m.t.Context(), k, true, 0)
			}
			return err
		})
	}
	return m.carryOut(s, "release", i, func(n *Backend, r *sResult) (err error) {
		r.state, err = on(n).release(m.t.Context(), keys("n", strconv.Itoa(i)), false, 0)
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
	same := int(token) == s.last && s.together && m.reads(i)
	if int(token) <= s.last && !same {
		m.fail = fmt.Sprintf("token %d after token %d", token, s.last)
	}
	for j := range m.clients {
		if m.reads(i) && m.reads(j) && j != i && s.attempt[j].valid() && !same && !s.failedOver {
			m.fail = fmt.Sprintf("sharers have the tokens %d and %d", s.last, token)
		}
	}
	s.last, s.together = int(token), m.reads(i)
}

func (a *sAttempt) valid() bool { return a.phase == sHeld && !a.expired }

// check looks at a state, and forgets what makes no difference any more.
func (m *sModel) check(s *sState) {
	valid, readers := 0, 0
	for i := range m.clients {
		a := &s.attempt[i]
		if a.phase == sOver && a.acquires == 0 && a.passes == 0 && a.releases == 0 && a.renewals == 0 && a.keeps == 0 {
			*a = sAttempt{phase: sOver, expired: a.expired, settled: a.settled, keptLong: a.keptLong}
		}
	}
	for i := range m.clients {
		a := &s.attempt[i]
		if a.valid() || a.phase == sKept && !a.keptLong {
			valid++
			if m.reads(i) {
				readers++
			}
		}
		owner, kept := ownerOf(s.store.lock)
		if life := s.store.sharers[i]; s.store.shared() && life != sAbsent {
			owner, kept = i, life == sStays
		}
		switch there := owner == i && !s.failedOver; {
		case a.settled && there:
			m.fail = fmt.Sprintf("attempt %d is settled, and has the lock", i)
		case a.phase == sKept && there && !kept && s.store.sharers[i] != sDead:
			m.fail = fmt.Sprintf("attempt %d is released, and has the lock", i)
		}
		if writer, _ := s.store.note(); a.settled && writer == i && !s.failedOver {
			m.fail = fmt.Sprintf("attempt %d has left, and its note is there", i)
		}
	}
	if valid > 1 && readers < valid && !s.failedOver {
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
	owner, kept := ownerOf(s.store.lock)
	switch {
	case s.store.shared():
		m.sharersExpire(s, do)
	case s.store.lock != "" && (owner < 0 || s.attempt[owner].mayEnd(kept)):
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
	case sNoted:
		do("leaves", func(_ *sState, a *sAttempt) { release(a, sLeaving) })
	case sHeld:
		if m.reads(i) {
			again(a.renewed, "renews", func(a *sAttempt) { a.renewals, a.renewed = 1, true })
		}
		if m.keeps(i) {
			do("releases and keeps", func(_ *sState, a *sAttempt) { a.phase, a.keeps = sReleasing, 1 })
		} else {
			do("releases", func(_ *sState, a *sAttempt) { release(a, sReleasing) })
		}
		if after && !m.reads(i) && !m.reads(i+1) && !a.repeated && !a.expired && s.attempt[i+1].phase == sIdle {
			do("passes", func(s *sState, a *sAttempt) {
				a.phase, a.passes = sPassing, 1
				s.attempt[i+1].phase = sAwaiting
			})
		}
	case sPassing:
		again(a.passAgain, "passes again", func(a *sAttempt) { a.passes, a.passAgain = a.passes+1, true })
		do("gives up passing", func(s *sState, a *sAttempt) {
			if m.passed && m.keeps(i) {
				a.phase, a.keeps = sReleasing, 1
			} else {
				release(a, sReleasing)
			}
			release(&s.attempt[i+1], sUndoing)
		})
	case sKept:
		do("is undone", func(_ *sState, a *sAttempt) { release(a, sUndoing) })
	case sReleasing, sUndoing, sLeaving:
		if a.keeps > 0 {
			again(a.again, "keeps again", func(a *sAttempt) { a.keeps, a.again = a.keeps+1, true })
			break
		}
		again(a.again, "releases again", func(a *sAttempt) { a.releases, a.again = a.releases+1, true })
	}
	if !a.expired && a.phase != sIdle && a.phase != sOver {
		do("lease ends", func(_ *sState, a *sAttempt) { a.expired = true })
	}
	if m.keeps(i) && !a.keptLong && a.phase >= sReleasing {
		do("is kept long enough", func(_ *sState, a *sAttempt) { a.keptLong = true })
	}
	if a.acquires > 0 {
		m.acquireArrives(i, a, do)
	}
	if a.keeps > 0 {
		m.keepArrives(i, a, do)
	}
	if a.passes > 0 {
		m.passArrives(i, a, do)
	}
	if a.renewals > 0 {
		do("its renewal arrives", func(s *sState, a *sAttempt) {
			a.renewals--
			s.store = m.renew(s, i).store
		})
	}
	if a.releases > 0 {
		arrives := func(s *sState, a *sAttempt) {
			r := m.release(s, i)
			a.releases--
			s.store = r.store
		}
		do("its release arrives, the reply is lost", arrives)
		if a.phase >= sReleasing && a.phase < sOver && a.phase != sNoted {
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
		case answer.sharers && m.clients[i] == m.client(i):
			a.phase = sNoted
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

func (m *sModel) keeps(i int) bool { return i < len(m.keepers) && m.keepers[i] == 'k' }

func (m *sModel) keepArrives(i int, a sAttempt, do func(string, func(*sState, *sAttempt))) {
	arrives := func(s *sState, a *sAttempt) whose {
		void := time.Duration(0)
		if a.repeated {
			void = sTTL
		}
		r := m.carryOut(s, fmt.Sprint("keep ", void), i, func(n *Backend, r *sResult) (err error) {
			r.state, err = on(n).keep(m.t.Context(), keys("n", strconv.Itoa(i)), m.reads(i), ttlOf(i), void)
			return err
		})
		a.keeps--
		s.store = r.store
		return r.state
	}
	do("its release arrives, the reply is lost", func(s *sState, a *sAttempt) { arrives(s, a) })
	if a.phase == sReleasing {
		do("its release arrives", func(s *sState, a *sAttempt) {
			if a.phase = sKept; arrives(s, a) != mine {
				a.phase, a.settled = sOver, true
			}
		})
		do("is undone", func(_ *sState, a *sAttempt) { a.phase, a.releases = sUndoing, a.releases+1 })
	}
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
		clients, readers, keepers string
		repeats                   int
		quiet                     bool
	}{
		{"AB", "", "", 0, false}, {"AB", "", "", 3, true}, {"AAB", "", "", 0, true}, {"ABc", "", "", 0, true},
		{"AB", "r", "", 0, false}, {"AB", "rr", "", 0, false}, {"AB", "r", "", 2, true}, {"AB", "rr", "", 2, true},
		{"ABC", "rr", "", 0, true}, {"ABC", "r", "", 0, true},
		{"AB", "", "k", 0, false}, {"AB", "", "kk", 2, true}, {"AB", "rr", "k", 2, true}, {"AB", "r", "k", 2, true},
		{"AAB", "", "kk", 0, true},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			m := newModel(t, c.clients, c.readers)
			m.keepers, m.quiet, m.repeats = c.keepers, c.quiet, c.repeats
			states, broken := m.search()
			assert.Empty(t, broken)
			assert.Greater(t, states, 10_000)
			t.Logf("%d states, %d requests", states, len(m.known))
		})
	}
}

// finds looks whether a search finds a mistake in the scripts: what is changed, and by what.
func finds(t *testing.T, mistake, clients, readers string, change []string, finds string, model func(*sModel)) {
	t.Run(mistake, func(t *testing.T) {
		t.Parallel()
		m := newModel(t, clients, readers, change...)
		m.repeats, m.quiet = 1, true
		model(m)
		_, broken := m.search()
		assert.Contains(t, broken, finds)
	})
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
			"if not mine(get(KEYS[1]), ARGV[2]) then", "if not get(KEYS[1]) then"}, nil,
			"two holders"},
		"an acquire takes what is held": {"AB", []string{"'NX', 'PX', ttl", "'PX', ttl"}, nil, "two holders"},
		"a pass does not compare": {"AAB", []string{
			"elseif not owns(value, ARGV[2]) and not owns(value, ARGV[2] .. KEPT) then", "elseif not value then"}, nil,
			"two holders"},
		"a value is not made void":    {"AB", []string{"if voided[k] then", "if false then"}, nil, "is settled"},
		"a next one is not made void": {"AAB", []string{"elseif found[2] then", "elseif false then"}, nil, "is settled"},
		"a lock does not expire":      {"AB", []string{"'NX', 'PX', ttl", "'NX'"}, nil, "left for ever"},
		"the clock is no floor":       {"AB", []string{"if token < now then", "if false then"}, nil, "after token"},
		"the counter is no floor": {"AB", []string{"(tonumber(counter or 0) or 0) + 1", "1"}, nil,
			"after token"},
		"a token from before the SET": {"AB", nil, func(m *sModel) { m.early = true }, "after token"},
		"the predecessor's token after a cut": {"AB", []string{
			"return {AGAIN, tonumber(string.sub(value, 1, 16))}", "return {AGAIN, tonumber(counter or 1)}"},
			func(m *sModel) { m.cut = true }, "after token"},
	} {
		finds(t, name, c.clients, "", c.change, c.finds, func(m *sModel) {
			if m.quiet = len(c.clients) > 2; c.model != nil {
				c.model(m)
			}
		})
	}
}
