package redlock

import (
	"bufio"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/redisnode"
)

// What follows searches through histories of the real code in virtual time: three clients, each with connections of
// its own to three servers that are made here, and a network that delays requests and answers, loses them and ends
// connections. So there are copies on fresh connections, callers that leave in the middle of a round, notes that make
// late votes void, repairs, and servers that are restarted empty. It promises that no two leases are valid at once,
// that tokens rise, that a lock is kept for as long as was asked, and that of what was undone nothing is there, or
// comes, ever again.

// vServer is a Redis that does what the scripts say.
type vServer struct {
	world   *vWorld
	run     int
	started time.Time
	scripts map[string]string // their kinds, by name
	keys    map[string]vKey
	hangs   string                            // from a script of this kind on; "all": it does. Nothing is carried out any more.
	loses   func(vote bool, text string) bool // a request, and what comes after it on its connection
}

type vKey struct {
	text string
	ends time.Time
}

// vWorld is everything that a history has. mu guards it all.
type vWorld struct {
	mu      sync.Mutex
	random  *rand.Rand
	calm    bool
	servers []*vServer
	grants  int
	kept    int
	undone  map[string]bool // owner values of which nothing may be left
	conns   []net.Conn      // of the servers: the driver leaves some open
	broken  string

	// Mistakes.
	noVoid, noGuard, noOwner, noKeep bool
}

func (w *vWorld) fail(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

// kinds are what the texts of scripts begin with.
var kinds = map[string]string{
	"-- One node's votes": "vote", "-- Removes locks that have": "release", "-- Takes locks back": "undo",
	"-- Keeps locks that have": "retain", "-- Notes under one key": "note",
}

func kindOf(text string) string {
	for begins, kind := range kinds {
		if strings.Contains(text, begins) {
			return kind
		}
	}
	if strings.Contains(text, "local CREATES = true") {
		return "repair"
	}
	return "keep"
}

// dial connects to a server: what the client writes is carried out there after a while, whatever becomes of the
// connection by then.
func (s *vServer) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	s.world.mu.Lock()
	s.world.conns = append(s.world.conns, server)
	s.world.mu.Unlock()
	commands := make(chan []string, 1000) // in the buffers of the network
	go func() {
		defer close(commands)
		for in := bufio.NewReader(server); ; {
			command, err := readWords(in)
			if err != nil {
				return
			}
			commands <- command
		}
	}()
	go func() {
		defer func() { _ = server.Close() }()
		silent, lossy := false, false
		for command := range commands {
			s.world.mu.Lock()
			before, after, fate := s.world.weather(strings.HasPrefix(strings.ToLower(command[0]), "eval"))
			s.world.mu.Unlock()
			time.Sleep(before)
			s.world.mu.Lock()
			if s.hangs == "all" || s.hangs != "" && command[0] == "evalsha" && s.scripts[command[1]] == s.hangs {
				s.hangs = "all"
				s.world.mu.Unlock()
				silent = true
				continue
			}
			vote := command[0] == "evalsha" && s.scripts[command[1]] == "vote"
			if lossy = lossy || s.loses != nil && s.loses(vote, strings.Join(command, " ")); lossy {
				s.world.mu.Unlock()
				continue
			}
			answer := s.do(command)
			s.world.mu.Unlock()
			time.Sleep(after)
			silent = silent || fate == lost
			if fate == ended {
				return
			}
			if !silent {
				_, _ = io.WriteString(server, answer) // what was sent arrives, whether anybody reads the answer or not
			}
		}
	}()
	return client, nil
}

const (
	fine = iota
	lost
	ended
)

// weather is how long a request and its answer take, and what becomes of the answer. Those by which a connection is
// made, and a server is looked at, take no time. w.mu is held.
func (w *vWorld) weather(script bool) (before, after time.Duration, fate int) {
	if w.calm || !script {
		return 0, time.Millisecond, fine
	}
	slow := func() time.Duration {
		switch w.random.IntN(12) {
		case 0:
			return time.Duration(w.random.IntN(1200)) * time.Millisecond
		case 1:
			return time.Duration(w.random.IntN(120)) * time.Millisecond
		}
		return time.Duration(w.random.IntN(3)) * time.Millisecond
	}
	switch w.random.IntN(20) {
	case 0:
		fate = lost
	case 1:
		fate = ended
	}
	return slow(), slow(), fate
}

func readWords(in *bufio.Reader) (words []string, err error) {
	length := func() int {
		line, failed := in.ReadString('\n')
		err = errors.Join(err, failed)
		n, _ := strconv.Atoi(strings.Trim(line, "*$\r\n"))
		return n
	}
	for range length() {
		text := make([]byte, length()+2)
		if _, failed := io.ReadFull(in, text); err != nil || failed != nil {
			return nil, errors.Join(err, failed)
		}
		words = append(words, string(text[:len(text)-2]))
	}
	return words, err
}

func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

// do carries out a command. w.mu is held.
func (s *vServer) do(c []string) string {
	switch strings.ToLower(c[0]) {
	case "info":
		return bulk(fmt.Sprintf("run_id:run%d\r\nredis_version:7.2.0\r\nrole:master\r\nuptime_in_seconds:%d\r\n", s.run,
			int(time.Since(s.started).Seconds())))
	case "config", "mget":
		return "*0\r\n"
	case "script":
		return bulk(s.learn(c[2]))
	case "evalsha":
		kind, known := s.scripts[c[1]]
		if !known {
			return "-NOSCRIPT No matching script.\r\n"
		}
		return s.call(kind, c)
	case "eval":
		return s.call(s.scripts[s.learn(c[1])], c)
	case "hello":
		return "-ERR unknown command 'HELLO'\r\n"
	}
	return "+OK\r\n"
}

func (s *vServer) learn(text string) string {
	name := fmt.Sprintf("%x", sha1.Sum([]byte(text)))
	s.scripts[name] = kindOf(text)
	return name
}

func (s *vServer) get(key string) string {
	k := s.keys[key]
	if !time.Now().Before(k.ends) {
		return ""
	}
	return k.text
}

func (s *vServer) set(key, text, ms string) {
	n, _ := strconv.Atoi(ms)
	s.keys[key] = vKey{text, time.Now().Add(time.Duration(n) * time.Millisecond)}
}

// prolong has a key last no less than it does.
func (s *vServer) prolong(key, ms string) string {
	k := s.keys[key]
	if s.set(key, k.text, ms); k.ends.After(s.keys[key].ends) {
		s.keys[key] = k
	}
	return ":1\r\n"
}

func (s *vServer) left(key string) int64 { return time.Until(s.keys[key].ends).Milliseconds() }

// call runs a script for each lock: K keys and A arguments.
func (s *vServer) call(kind string, c []string) string {
	shape := map[string][2]int{"vote": {4, 3}, "keep": {2, 5}, "repair": {3, 5}, "release": {2, 1}, "undo": {3, 2}, "retain": {3, 3}}
	k, ok := shape[kind]
	if !ok {
		return "+OK\r\n"
	}
	n, _ := strconv.Atoi(c[2])
	keys, args := c[3:3+n], c[3+n:]
	answer := fmt.Sprintf("*%d\r\n", n/k[0])
	for i := range n / k[0] {
		answer += s.one(kind, args[0], keys[i*k[0]:(i+1)*k[0]], args[1+i*k[1]:1+(i+1)*k[1]])
	}
	for key, v := range s.keys {
		if value := redisnode.ReadValue(v.text); s.world.undone[value.Owner] && s.get(key) != "" && !strings.Contains(key, "}:") {
			s.world.fail("%s was undone, and is there after %s", value.Owner, kind)
		}
	}
	return answer
}

func (s *vServer) one(kind, mode string, keys, args []string) string {
	owner, lock := args[0], keys[0]
	if kind == "vote" {
		lock = keys[1]
	}
	value := redisnode.ReadValue(s.get(lock))
	mine := s.get(lock) != "" && value.Owner == owner
	code := func(code redisnode.Code, n int64) string { return fmt.Sprintf("*2\r\n:%d\r\n:%d\r\n", code, n) }
	missing := code(redisnode.Gone, 0)
	if s.get(lock) != "" {
		missing = code(redisnode.Theirs, 0)
	}
	void := func(key, ms, answer string) string {
		if !s.world.noVoid {
			before := s.keys[key]
			if s.set(key, "1", ms); before.ends.After(s.keys[key].ends) {
				s.keys[key] = before
			}
		}
		return answer
	}
	switch kind {
	case "vote":
		return s.vote(mode, keys, args, value, mine)
	case "keep", "repair":
		creates := kind == "repair" && s.get(lock) == ""
		switch {
		case kind == "repair" && s.get(keys[2]) != "":
			return code(redisnode.Void, 0)
		case (!mine || value.Kept) && !creates:
			return missing
		}
		if token, _ := strconv.ParseUint(args[2], 10, 64); token > 0 {
			n, by := counterOf(s.get(keys[1]))
			if n > token && by != owner || n == token && by != owner {
				return code(redisnode.Overtaken, 0)
			}
			s.set(keys[1], fmt.Sprint(max(n, token), " ", owner), "86400000")
		}
		if creates {
			s.set(lock, args[4]+" "+owner, args[1])
			return ":1\r\n"
		}
		return s.prolong(lock, args[1])
	case "release", "undo":
		answer := missing
		if mine || s.world.noOwner && s.get(lock) != "" {
			delete(s.keys, lock)
			answer = ":1\r\n"
		}
		if kind == "undo" {
			return void(keys[2], args[1], answer)
		}
		return answer
	}
	answer := missing // retain
	if mine {
		answer = ":1\r\n"
		if s.world.noKeep {
			delete(s.keys, lock)
		} else if !value.Kept {
			s.set(lock, s.get(lock)+redisnode.Kept, args[1])
		}
	}
	if args[2] != "0" {
		return void(keys[2], args[2], answer)
	}
	return answer
}

func (s *vServer) vote(mode string, keys, args []string, value redisnode.Value, mine bool) string {
	lock, owner := keys[1], args[0]
	if s.get(keys[0]) != "" {
		return "*2\r\n:3\r\n:0\r\n"
	}
	n, by := counterOf(s.get(keys[3]))
	token := uint64(1)
	if mode == "tokens" {
		token = max(n+1, uint64(time.Now().UnixMicro()))
	} else {
		by = ""
	}
	switch {
	case s.get(lock) == "":
		s.set(lock, args[2]+" "+owner, args[1])
		return fmt.Sprintf(":%d\r\n", token)
	case !mine || value.Kept:
		return fmt.Sprintf("*3\r\n:2\r\n:%d\r\n%s", s.left(lock), bulk(value.Owner[:min(16, len(value.Owner))]))
	case by == owner:
		return fmt.Sprintf("*3\r\n:1\r\n:%d\r\n%s", n, bulk("raised"))
	}
	s.prolong(lock, args[1])
	return fmt.Sprintf("*2\r\n:1\r\n:%d\r\n", token)
}

func counterOf(text string) (n uint64, by string) {
	digits, by, _ := strings.Cut(text, " ")
	n, _ = strconv.ParseUint(digits, 10, 64)
	return n, by
}

// found makes servers, which have been up for an hour.
func (w *vWorld) found(nodes int) {
	for i := range nodes {
		w.servers = append(w.servers, &vServer{world: w, run: i, started: time.Now().Add(-time.Hour), scripts: map[string]string{},
			keys: map[string]vKey{}})
	}
}

// backend connects to the servers. end closes it, and its connections.
func (w *vWorld) backend(t *testing.T, o *Options) (b *Backend, end func()) {
	var drivers []*redis.Client
	for _, s := range w.servers {
		drivers = append(drivers, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: s.dial, Protocol: 2, MaxRetries: -1,
			DisableIdentity: true, PipelinePoolSize: -1, PoolSize: 1000, // its queue has timers that bubbles would share
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}}))
	}
	b, err := New(drivers, o)
	require.NoError(t, err)
	return b, func() {
		require.NoError(t, errors.Join(b.Close()))
		for _, c := range drivers {
			_ = c.Close()
		}
	}
}

// hangUp closes the connections of the servers.
func (w *vWorld) hangUp() {
	for _, c := range w.conns {
		_ = c.Close()
	}
}

// restart empties a server. w.mu is held.
func (s *vServer) restart() {
	s.run += 100
	s.started, s.keys = time.Now(), map[string]vKey{}
	if !s.world.noGuard {
		s.scripts = map[string]string{}
	}
}

// history is one life of the world.
func (w *vWorld) history(t *testing.T, seed uint64, restarts bool) {
	const ttl, clients, nodes = time.Second, 3, 3
	w.random, w.undone = rand.New(rand.NewPCG(seed, 1)), map[string]bool{}
	w.found(nodes)
	fencing := seed%2 == 0
	holders, last := map[int]time.Time{}, uint64(0)
	chance := func(n int) int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.random.IntN(n)
	}
	var all, undoing sync.WaitGroup
	undo := func(h driver.Hold, value string) {
		undoing.Go(func() {
			for range 1000 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				err := h.Undo(ctx)
				cancel()
				if err == nil {
					w.mu.Lock()
					w.undone[value] = true
					w.mu.Unlock()
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
			w.fail("%s cannot be undone", value)
		})
	}
	life, end := context.WithTimeout(context.Background(), 15*time.Second)
	defer end()
	defer w.hangUp()
	for c := range clients {
		b, end := w.backend(t, &Options{Fencing: fencing, MaxTTL: ttl, NoRestartGuard: w.noGuard})
		all.Go(func() {
			for n := 0; life.Err() == nil; n++ {
				ctx, cancel := context.WithCancel(life)
				if chance(4) == 0 {
					ctx, cancel = context.WithTimeout(life, time.Duration(chance(80))*time.Millisecond)
				}
				g, err := b.Acquire(ctx, driver.Request{Name: "x", Owner: fmt.Sprintf("%040d", c*1000+n), TTL: ttl, Wait: chance(2) == 0})
				cancel()
				switch {
				case g.Hold != nil && err != nil:
					undo(g.Hold, g.Hold.(*hold).keys.Value().(string))
				case g.Refused != nil || err != nil:
					if g.Refused != nil && g.Refused.Undo != nil {
						_ = g.Refused.Undo(life)
					}
				case g.Hold != nil && time.Now().Before(g.Validity.Until()):
					w.holds(c, g, holders, &last)
					w.use(life, c, g, holders, chance)
					w.lets(life, c, g.Hold.(*hold), holders, chance, undo)
				}
				time.Sleep(time.Duration(chance(30)) * time.Millisecond)
			}
		})
		defer end()
	}
	if restarts {
		all.Go(func() {
			for life.Err() == nil {
				time.Sleep(3*time.Second + time.Duration(chance(2000))*time.Millisecond) // one at a time
				w.mu.Lock()
				w.servers[w.random.IntN(nodes)].restart()
				w.mu.Unlock()
			}
		})
	}
	all.Wait()
	undoing.Wait()
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	time.Sleep(5 * time.Second) // what is late arrives
}

// holds notes a holder.
func (w *vWorld) holds(c int, g driver.Grant, holders map[int]time.Time, last *uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for other, until := range holders {
		if other != c && time.Now().Before(until) {
			w.fail("two holders: %d until %v, and %d", other, until, c)
		}
	}
	if g.Token != 0 && g.Token <= *last {
		w.fail("token %d after token %d", g.Token, *last)
	}
	w.grants++
	holders[c], *last = g.Validity.Until(), max(*last, g.Token)
}

// use holds a lock for a while, and renews it.
func (w *vWorld) use(ctx context.Context, c int, g driver.Grant, holders map[int]time.Time, chance func(int) int) {
	for range chance(4) {
		time.Sleep(time.Duration(chance(300)) * time.Millisecond)
		w.mu.Lock()
		valid := time.Now().Before(holders[c])
		w.mu.Unlock()
		if !valid {
			break
		}
		v, err := g.Hold.Renew(ctx)
		w.mu.Lock()
		if err == nil && time.Now().Before(holders[c]) {
			holders[c] = v.Until()
		}
		w.mu.Unlock()
		if err != nil {
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(holders, c)
}

// lets has a holder release its lock, keep it for a while, or undo it.
func (w *vWorld) lets(ctx context.Context, c int, h *hold, holders map[int]time.Time, chance func(int) int,
	undo func(driver.Hold, string),
) {
	if keep := time.Duration(chance(400)) * time.Millisecond; chance(3) == 0 {
		asked := time.Now()
		for range chance(3) {
			if err := h.Release(ctx, keep); err == nil {
				w.mu.Lock()
				w.kept++
				holders[c] = asked.Add(keep)
				w.mu.Unlock()
				time.Sleep(time.Duration(chance(500)) * time.Millisecond)
				break
			}
		}
		w.mu.Lock()
		delete(holders, c)
		w.mu.Unlock()
		if chance(2) == 0 {
			return
		}
	}
	if chance(3) == 0 || h.Release(ctx, 0) != nil {
		undo(h, h.keys.Value().(string))
	}
}

// search runs histories until one breaks a promise.
func (w *vWorld) search(t *testing.T, from, n uint64, restarts bool) (broken string) {
	for seed := from; seed < from+n && broken == ""; seed++ {
		synctest.Test(t, func(t *testing.T) {
			world := &vWorld{noVoid: w.noVoid, noGuard: w.noGuard, noOwner: w.noOwner, noKeep: w.noKeep}
			world.history(t, seed, restarts)
			w.grants, w.kept = w.grants+world.grants, w.kept+world.kept
			if broken = world.broken; broken != "" {
				broken = fmt.Sprintf("seed %d: %s", seed, broken)
			}
		})
	}
	return broken
}

const histories = 30

func TestVirtualHistories(t *testing.T) {
	t.Parallel()
	for _, restarts := range []bool{false, true} {
		w := &vWorld{}
		assert.Empty(t, w.search(t, 1, histories, restarts))
		assert.Greater(t, w.grants, 5*histories, "the histories do next to nothing")
		assert.Greater(t, w.kept, histories)
		t.Log(w.grants, "locks,", w.kept, "of them kept")
	}
}

// A search that does not find what is wrong proves nothing.
func TestVirtualHistoriesFindMistakes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		world    *vWorld
		restarts bool
		finds    []string
	}{
		"what is taken back is not void":  {&vWorld{noVoid: true}, false, []string{"was undone, and is there"}},
		"a release removes any lock":      {&vWorld{noOwner: true}, false, []string{"two holders"}},
		"nothing is kept":                 {&vWorld{noKeep: true}, false, []string{"two holders"}},
		"a server votes at once when new": {&vWorld{noGuard: true}, true, []string{"two holders", "was undone, and is there", " after token "}},
	} {
		broken := c.world.search(t, 1, 200, c.restarts)
		assert.True(t, slices.ContainsFunc(c.finds, func(found string) bool { return strings.Contains(broken, found) }), "%s: %s", name, broken)
		t.Log(name, broken)
	}
}

// hanging has each server hang from a script of a kind on, or not at all (""), and calls f with what asks a Backend that
// gives each node 50 ms, and has no quorum.
func hanging(t *testing.T, nodes int, hangs []string, f func(t *testing.T, acquire func() (took time.Duration))) {
	synctest.Test(t, func(t *testing.T) {
		w := &vWorld{calm: true}
		w.found(nodes)
		defer w.hangUp()
		b, end := w.backend(t, &Options{Fencing: true, NodeTimeout: 50 * time.Millisecond})
		defer end()
		n := 0
		ask := func() (driver.Grant, error) {
			n++
			return b.Acquire(t.Context(), driver.Request{Name: fmt.Sprint("n", n), Owner: fmt.Sprintf("%040d", n), TTL: time.Second})
		}
		_, err := ask()
		require.NoError(t, err)
		time.Sleep(time.Second) // each server was looked at
		hang := func(kinds []string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for i, kind := range kinds {
				w.servers[i].hangs = kind
			}
		}
		hang(hangs)
		f(t, func() time.Duration {
			began := time.Now()
			_, err := ask()
			require.ErrorIs(t, err, driver.ErrUnavailable)
			return time.Since(began)
		})
		hang(make([]string, nodes))
		time.Sleep(10 * time.Second) // nothing is under way any more
	})
}

// twoRounds is more than two of them take, each with up to 200 ms and the pause between them; the driver gives up what
// was sent after two seconds.
const twoRounds = 500 * time.Millisecond

// While a quorum hangs, each try fails in its own time: it does not also wait until the driver has given up what tries
// before it have sent (R22).
func TestAQuorumThatHangsHoldsNobodyUp(t *testing.T) {
	hanging(t, 3, []string{"", "all", "all"}, func(t *testing.T, acquire func() time.Duration) {
		for range 16 { // twice as many as can be under way
			assert.LessOrEqual(t, acquire(), twoRounds)
		}
	})
}

// A node that was not waited for in the first phase is not waited for in the second either.
func TestTheSecondPhaseDoesNotWaitForVotesThatAreOverdue(t *testing.T) {
	hanging(t, 5, []string{"", "", "keep", "all", "all"}, func(t *testing.T, acquire func() time.Duration) {
		assert.LessOrEqual(t, acquire(), twoRounds) // the third votes, and is silent after that
	})
}

// Whatever an Acquire ends with, its Undo is for all of its rounds: here nobody knows what has become of the first one,
// and the second is won, refused, or ends in the same way.
func TestUndoIsForTheRoundsBefore(t *testing.T) {
	for _, end := range []string{"won", "held", "unavailable"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &vWorld{calm: true}
				w.found(3)
				defer w.hangUp()
				b, stop := w.backend(t, &Options{NodeTimeout: 50 * time.Millisecond})
				defer stop()
				ask := func(name, owner string) (driver.Grant, error) {
					return b.Acquire(t.Context(), driver.Request{Name: name, Owner: owner, TTL: driver.DefaultTTL})
				}
				loses := func(text string) { // the last server all that has it, and the others its votes
					w.mu.Lock()
					defer w.mu.Unlock()
					for i, s := range w.servers {
						s.loses = func(vote bool, got string) bool {
							return (vote || i == 2) && text != "" && strings.Contains(got, text)
						}
					}
				}
				_, err := ask("warm", "w")
				require.NoError(t, err)
				if end == "held" {
					_, err = ask("n", "another")
					require.NoError(t, err)
				}
				time.Sleep(100 * time.Millisecond) // each server was looked at, and has answered
				if loses("me.0:"); end == "unavailable" {
					loses("me.")
				}
				g, err := ask("n", "me")
				var undo func(context.Context) error
				require.Equal(t, end == "unavailable", errors.Is(err, driver.ErrUnavailable))
				if end == "held" {
					require.NotNil(t, g.Refused)
					require.NotNil(t, g.Refused.Undo)
					undo = g.Refused.Undo
				} else {
					require.Len(t, g.Hold.(*hold).before, 1)
					undo = g.Hold.Undo
				}
				loses("me.0:")
				undone := func() error {
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
					defer cancel()
					return undo(ctx)
				}
				for range 5 { // long before the time is over for which it would last
					require.Error(t, undone())
				}
				loses("")
				require.Eventually(t, func() bool { return undone() == nil }, time.Minute, 10*time.Millisecond)
				time.Sleep(10 * time.Second) // nothing is under way any more
			})
		})
	}
}
