package bridge_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/internal/lab"
)

const (
	fleetTTL = 2 * time.Second
	// stuck is when a member that has not held anything is taken for one that never will.
	stuck = time.Minute
)

var fleetNames = []string{"orders", "invoices", "stock"}

// Fleets of processes move from one service to another and back, under contention,
// with members that are killed, members that are stopped past their TTL, and a
// service that stands still in the middle step. Where there are shared locks, a third of
// the turns are those of writers. LOCKER_BRIDGE_ALL=1 makes it a
// hundred moves for each pair; LOCKER_BRIDGE_MOVES=N any number.
func TestFleets(t *testing.T) {
	lab.NeedProve(t)
	moves, size := 2, 4
	if os.Getenv(allEnv) != "" {
		moves, size = 100, 12
	}
	if n, err := strconv.Atoi(os.Getenv("LOCKER_BRIDGE_MOVES")); err == nil {
		moves = n
	}
	for _, pair := range [][2]string{{"redis", "etcd"}, {"redis", "redlock"}, {"redlock", "zookeeper"},
		{"file", "redis"}, {"etcd", "postgres"}} {
		t.Run(pair[0]+" to "+pair[1], func(t *testing.T) {
			t.Parallel()
			first, second := services[pair[0]](t), services[pair[1]](t)
			ttl := max(fleetTTL, first.session("fleet"), second.session("fleet"))
			a, b := fleetURL(first, ttl), fleetURL(second, ttl)
			g, began := newGuard(), time.Now()
			for done := 0; done < moves; done += fleetMoves {
				t.Run(fmt.Sprintf("from %d on", done), func(t *testing.T) { // which has its children cleared up
					f := newFleet(t, g, size, first, second)
					f.roll(t, a)
					for move := range min(fleetMoves, moves-done) {
						f.roll(t, a+" "+b)
						if move%5 == 0 {
							f.standStill(t, (done+move)/5)
						}
						f.roll(t, []string{b, a}[move%2])
					}
					f.end(t)
					f.nothingLeft(t, a, b)
					t.Logf("%d moves in %v: %v", min(done+fleetMoves, moves), time.Since(began).Round(time.Second),
						g.counted())
				})
			}
		})
	}
}

// fleetMoves is how many moves one fleet makes: forward and back, and so on.
const fleetMoves = 10

// Without the step in the middle, two hold the same name, and the test sees it.
func TestFleetThatLeavesTheMiddleStepOut(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	first, second := redisService(t), etcdService(t)
	f := newFleet(t, newGuard(), 4, first, second)
	f.guard.expectOverlaps = true
	f.roll(t, fleetURL(first, fleetTTL))
	for range 10 {
		f.roll(t, fleetURL(second, fleetTTL))
		f.roll(t, fleetURL(first, fleetTTL))
		if f.guard.sum().overlaps > 0 {
			break
		}
	}
	f.end(t)
	assert.Positive(t, f.guard.sum().overlaps)
	t.Log(f.guard.counted())
}

func fleetURL(s *service, ttl time.Duration) string {
	u := s.ownURL()
	sep := "?"
	if strings.Contains(u, "?") {
		sep = "&"
	}
	return u + sep + "ttl=" + ttl.String()
}

// guard is the resource: it knows who is in, and the highest token of each name.
type guard struct {
	expectOverlaps bool

	mu      sync.Mutex
	inside  map[string]map[string]entry // by name and member
	marks   map[string]uint64
	turnsOf map[string]int  // of those who hold alone
	killed  map[string]bool // members that do not act any more, whatever they have said last
	born    int             // members so far
	tally
	waitedFor []string // what members have said to be in the way
	problems  []string
}

type tally struct{ turns, reads, overlaps, refused, stale, kills, stops, stills int }

// entry is a holder at the resource.
type entry struct {
	until  time.Time // when its lease is over
	shared bool
}

func newGuard() *guard {
	return &guard{inside: map[string]map[string]entry{}, marks: map[string]uint64{}, turnsOf: map[string]int{},
		killed: map[string]bool{}}
}

func (g *guard) sum() tally {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tally
}

func (g *guard) counted() string {
	c := g.sum()
	return fmt.Sprintf("%d turns (%d of them shared), %d overlaps, %d rightful holders refused, "+
		"%d stale ones refused, %d kills, %d stops, %d times a service stood still",
		c.turns, c.reads, c.overlaps, c.refused, c.stale, c.kills, c.stops, c.stills)
}

func (g *guard) enter(member, name string, token uint64, until time.Time, shared bool) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	rightful := now.Before(until)
	for other, old := range g.inside[name] {
		if g.killed[other] || !rightful || !now.Before(old.until) || shared && old.shared {
			continue
		}
		g.overlaps++
		if !g.expectOverlaps {
			g.problems = append(g.problems, fmt.Sprintf("%s: %s comes in with token %d (shared %t), and the lease "+
				"of %s lasts for %v (shared %t)", name, member, token, shared, other, old.until.Sub(now), old.shared))
		}
	}
	late := token <= g.marks[name]
	if shared { // those that share a lease have one token, or none
		late = token > 0 && token < g.marks[name] || token == 0 && !rightful
	}
	if late && !g.expectOverlaps {
		if !rightful {
			g.stale++
			return "stale"
		}
		g.refused++
		g.problems = append(g.problems, fmt.Sprintf("%s: %s has token %d and a lease for %v, and the mark is %d",
			name, member, token, until.Sub(now), g.marks[name]))
		return "refused"
	}
	g.marks[name] = max(g.marks[name], token)
	if g.inside[name] == nil {
		g.inside[name] = map[string]entry{}
	}
	g.inside[name][member] = entry{until, shared}
	g.turns++
	if shared {
		g.reads++
	} else {
		g.turnsOf[name]++
	}
	return "ok"
}

func (g *guard) leave(member, name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.inside[name], member)
}

// fleet is the members and what they share.
type fleet struct {
	guard   *guard
	pair    [2]*service
	addr    string
	members []*member
	served  sync.WaitGroup
}

// member is a process of the fleet.
type member struct {
	id     string
	child  *lab.Child
	resume time.Time // when it goes on, if it was stopped

	mu    sync.Mutex
	turns int
}

func newFleet(t *testing.T, g *guard, size int, first, second *service) *fleet {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fleet{
		guard: g,
		pair:  [2]*service{first, second}, addr: listener.Addr().String(), members: make([]*member, size),
	}
	f.served.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			f.served.Go(func() { f.serve(conn) })
		}
	})
	t.Cleanup(func() {
		for _, m := range f.members {
			if m != nil && m.child != nil {
				m.child.Kill()
			}
		}
		_ = listener.Close()
		f.served.Wait()
	})
	return f
}

// serve talks with one member.
func (f *fleet) serve(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	var id string
	defer func() {
		for _, name := range fleetNames { // the dead do not act
			f.guard.leave(id, name)
		}
	}()
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		args := strings.Fields(rest)
		switch word {
		case "member":
			id = rest
		case "enter":
			token, _ := strconv.ParseUint(args[1], 10, 64)
			until, _ := strconv.ParseInt(args[2], 10, 64)
			end := time.Unix(0, until)
			answer := f.guard.enter(id, args[0], token, end, args[3] == "true")
			if answer == "ok" {
				f.turn(id)
			}
			_, _ = fmt.Fprintln(conn, answer)
		case "leave":
			f.guard.leave(id, args[0])
			_, _ = fmt.Fprintln(conn, "ok")
		case "waiting":
			f.guard.mu.Lock()
			f.guard.waitedFor = append(f.guard.waitedFor, rest)
			f.guard.mu.Unlock()
		}
	}
}

// turn notes that a member has held a lock.
func (f *fleet) turn(id string) {
	f.guard.mu.Lock()
	defer f.guard.mu.Unlock()
	for _, m := range f.members {
		if m != nil && m.id == id {
			m.mu.Lock()
			m.turns++
			m.mu.Unlock()
		}
	}
}

func (m *member) hasHeld() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.turns > 0
}

// roll starts every member anew with these URLs, one after the other at random
// moments, and returns when each of them has held a lock since.
func (f *fleet) roll(t *testing.T, urls string) {
	t.Helper()
	var stopped []*member
	for _, i := range rand.Perm(len(f.members)) {
		time.Sleep(rand.N(100 * time.Millisecond))
		if old := f.members[i]; old != nil && !f.retire(t, old) {
			stopped = append(stopped, old)
		}
		f.guard.born++
		m := &member{id: "m" + strconv.Itoa(f.guard.born)}
		f.guard.mu.Lock()
		f.members[i] = m
		f.guard.mu.Unlock()
		m.child = lab.StartChild(t, "member", f.addr, m.id, urls)
	}
	for _, m := range stopped { // the next step may come when they are gone
		f.gone(t, m)
	}
	for _, m := range f.members {
		require.Eventually(t, m.hasHeld, stuck, 10*time.Millisecond, "%s with %s has not held anything: %s",
			m.id, urls, m.child.Log())
	}
	// The step is complete when what the last one has left is over, and those of this
	// step have held every name alone: so its tokens are known to whoever comes next.
	for _, name := range fleetNames {
		turns := func() int {
			f.guard.mu.Lock()
			defer f.guard.mu.Unlock()
			return f.guard.turnsOf[name]
		}
		before := turns()
		require.Eventually(t, func() bool { return turns() > before }, stuck, 5*time.Millisecond,
			"%s: nobody gets %s", urls, name)
	}
	f.guard.mu.Lock()
	problems := f.guard.problems
	f.guard.mu.Unlock()
	require.Empty(t, problems)
}

// retire ends a member: mostly in good order, sometimes not. It returns false if it
// stands still before that for longer than what it holds lasts.
func (f *fleet) retire(t *testing.T, m *member) bool {
	switch rand.N(24) {
	case 0, 1:
		f.count(func(c *tally) { c.kills++ })
		f.guard.mu.Lock()
		f.guard.killed[m.id] = true
		f.guard.mu.Unlock()
		m.child.Kill()
		return true
	case 2:
		m.child.Pause()
		m.resume = time.Now().Add(fleetTTL + fleetTTL/2)
		f.count(func(c *tally) { c.stops++ })
		return false
	}
	f.gone(t, m)
	return true
}

// gone returns when a member has ended in good order.
func (f *fleet) gone(t *testing.T, m *member) {
	m.child.Send(t, "quit")
	if !m.resume.IsZero() {
		time.Sleep(time.Until(m.resume))
		m.child.Resume()
	}
	if code := m.child.Wait(t, stuck); code != 0 {
		t.Errorf("%s ended with %d: %s", m.id, code, m.child.Log())
	}
}

func (f *fleet) count(do func(*tally)) {
	f.guard.mu.Lock()
	defer f.guard.mu.Unlock()
	do(&f.guard.tally)
}

// standStill stops one of the two services in the middle step: the fleet waits, says
// for which, and goes on.
func (f *fleet) standStill(t *testing.T, n int) {
	t.Helper()
	s := f.pair[n%2]
	if s.stop == nil {
		s = f.pair[1-n%2]
	}
	f.guard.mu.Lock()
	f.guard.waitedFor = nil
	f.guard.mu.Unlock()
	goOn := s.stop()
	f.count(func(c *tally) { c.stills++ })
	where, _, _ := strings.Cut(s.ownURL()[strings.LastIndex(s.ownURL(), "@")+1:], "?")
	where = where[strings.LastIndex(where, "://")+1:]
	where = strings.TrimPrefix(where, "//")
	said := func() bool {
		f.guard.mu.Lock()
		defer f.guard.mu.Unlock()
		for _, text := range f.guard.waitedFor {
			if strings.Contains(text, where) {
				return true
			}
		}
		return false
	}
	ok := assert.Eventually(t, said, stuck, 10*time.Millisecond, "nobody says that it waits for %s", where)
	before := f.guard.sum().turns
	time.Sleep(fleetTTL / 2)
	during := f.guard.sum().turns - before
	goOn()
	if !ok {
		f.guard.mu.Lock()
		t.Log(f.guard.waitedFor)
		f.guard.mu.Unlock()
	}
	assert.LessOrEqual(t, during, len(f.members),
		"turns while a service stood still, and not only of those that had been let in")
	after := f.guard.sum().turns
	require.Eventually(t, func() bool { return f.guard.sum().turns > after+10 }, stuck, 10*time.Millisecond,
		"the fleet does not go on")
}

// end retires all in good order.
func (f *fleet) end(t *testing.T) {
	for _, m := range f.members {
		m.child.Send(t, "quit")
	}
	for _, m := range f.members {
		assert.Zero(t, m.child.Wait(t, stuck), "%s", m.child.Log())
	}
}

// nothingLeft takes every name on each service alone.
func (f *fleet) nothingLeft(t *testing.T, urls ...string) {
	for _, u := range urls {
		c, err := backends.Openers.Open(t.Context(), u, nil)
		require.NoError(t, err)
		for _, name := range fleetNames {
			ctx, cancel := context.WithTimeout(t.Context(), stuck)
			l, err := c.Lock(ctx, name) // the dead's session may last for a while
			cancel()
			if assert.NoError(t, err, u) {
				st, err := c.Inspect(t.Context(), name)
				require.NoError(t, err)
				assert.LessOrEqual(t, st.Waiters, 0, "%s: somebody waits who has ended", u)
				assert.NoError(t, l.Unlock(t.Context()))
			}
		}
		require.NoError(t, c.Close())
	}
}

// memberRole is a program of the fleet: the guard's address, its own name, the URLs.
func memberRole(p *lab.Parent) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	conn, err := net.Dial("tcp", p.Args[0])
	must(err)
	var mu sync.Mutex // lines of the trace come from elsewhere
	answers := bufio.NewScanner(conn)
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintln(conn, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
	}
	ask := func(format string, args ...any) string {
		say(format, args...)
		if !answers.Scan() {
			panic("the guard is gone")
		}
		return answers.Text()
	}
	say("member %s", p.Args[1])
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		p.Hear()
		cancel()
	}()
	options := &locker.Options{Label: p.Args[1], Patience: 2 * stuck, Trace: &locker.Trace{
		Waiting: func(_ context.Context, e locker.Event) { say("waiting %v", e.Err) },
	}}
	var c *locker.Client
	for c == nil {
		// As whoever runs a fleet starts a program again that did not come up.
		c, err = backends.Openers.Open(ctx, p.Args[2], options)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			say("waiting %v", err)
			time.Sleep(100 * time.Millisecond)
		}
	}
	for ctx.Err() == nil {
		name := fleetNames[rand.N(len(fleetNames))]
		var opts []locker.Option
		if c.Guarantees().Shared != locker.SharingNone && rand.N(3) > 0 {
			opts = append(opts, locker.Shared())
		}
		l, err := c.Lock(ctx, name, opts...)
		if err != nil {
			say("waiting %v", err)
			continue
		}
		token, _ := l.Token()
		until := l.Until()
		if ask("enter %s %d %d %t", name, token, until.UnixNano(), l.Shared()) == "ok" {
			select {
			case <-time.After(rand.N(20 * time.Millisecond)):
			case <-l.Done():
			}
			ask("leave %s", name)
		}
		release, stop := context.WithTimeout(context.Background(), time.Second)
		_ = l.Unlock(release)
		stop()
	}
	_ = c.Close()
}
