package bridgetest_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
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
// service that stands still in the middle step.
func TestFleets(t *testing.T) {
	lab.NeedProve(t)
	for _, pair := range pairs {
		t.Run(pair[0]+" to "+pair[1], func(t *testing.T) {
			t.Parallel()
			first, second := services[pair[0]](t), services[pair[1]](t)
			ttl := max(fleetTTL, first.ttl, second.ttl)
			a, b := fleetURL(first, ttl), fleetURL(second, ttl)
			f := newFleet(t)
			f.roll(t, a)
			f.roll(t, a+" "+b)
			stopped := []*service{first, second}[rand.N(2)]
			if stopped.stop == nil {
				stopped = second
			}
			f.standStill(t, stopped)
			f.roll(t, b)
			f.roll(t, a+" "+b)
			f.roll(t, a)
			f.end(t)
			f.nothingLeft(t, a, b)
		})
	}
}

// Without the step in the middle, two hold the same name, and the test sees it.
func TestFleetThatLeavesTheMiddleStepOut(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	first, second := redisService(t), etcdService(t)
	f := newFleet(t)
	f.guard.expectOverlaps = true
	f.roll(t, fleetURL(first, fleetTTL))
	for n := 0; n < 10 && f.guard.count("overlaps") == 0; n++ {
		f.roll(t, fleetURL(second, fleetTTL))
		f.roll(t, fleetURL(first, fleetTTL))
	}
	f.end(t)
	assert.Positive(t, f.guard.count("overlaps"))
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

	mu        sync.Mutex
	inside    map[string]map[string]time.Time // by name and member: when the lease is over
	marks     map[string]uint64
	killed    map[string]bool // members that do not act any more, whatever they have said last
	counts    map[string]int  // of overlaps, and of turns: all, those of each member, and of each name
	waitedFor []string        // what members have said to be in the way
	problems  []string
}

func newGuard() *guard {
	g := &guard{inside: map[string]map[string]time.Time{}, marks: map[string]uint64{}, killed: map[string]bool{},
		counts: map[string]int{}}
	for _, name := range fleetNames {
		g.inside[name] = map[string]time.Time{}
	}
	return g
}

// do calls f, which no other does meanwhile.
func (g *guard) do(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

func (g *guard) count(what string) (n int) {
	g.do(func() { n = g.counts[what] })
	return n
}

// enter lets a holder in, or says why not. g.mu is held.
func (g *guard) enter(member, name string, token uint64, until time.Time) string {
	now := time.Now()
	rightful := now.Before(until)
	for other, old := range g.inside[name] {
		if g.killed[other] || !rightful || !now.Before(old) {
			continue
		}
		g.counts["overlaps"]++
		if !g.expectOverlaps {
			g.problems = append(g.problems, fmt.Sprintf("%s: %s comes in with token %d, and the lease of %s lasts for %v",
				name, member, token, other, old.Sub(now)))
		}
	}
	switch {
	case token > g.marks[name] || g.expectOverlaps:
	case !rightful:
		return "stale"
	default:
		g.problems = append(g.problems, fmt.Sprintf("%s: %s has token %d and a lease for %v, and the mark is %d",
			name, member, token, until.Sub(now), g.marks[name]))
		return "refused"
	}
	g.marks[name] = max(g.marks[name], token)
	g.inside[name][member] = until
	g.counts["turns"]++
	g.counts[member]++
	g.counts[name]++
	return "ok"
}

// fleet is the members and what they share.
type fleet struct {
	guard   *guard
	addr    string
	members []*member
	begun   int // so many, one after the other
	served  sync.WaitGroup
}

// member is a process of the fleet.
type member struct {
	id     string
	child  *lab.Child
	resume time.Time // when it goes on, if it was stopped
}

func newFleet(t *testing.T) *fleet {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fleet{guard: newGuard(), addr: listener.Addr().String(), members: make([]*member, 4)}
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
	g, lines, id := f.guard, bufio.NewScanner(conn), ""
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		args := strings.Fields(rest)
		answer := "ok"
		g.do(func() {
			switch word {
			case "member":
				id = rest
			case "enter":
				token, _ := strconv.ParseUint(args[1], 10, 64)
				until, _ := strconv.ParseInt(args[2], 10, 64)
				answer = g.enter(id, args[0], token, time.Unix(0, until))
			case "leave":
				delete(g.inside[args[0]], id)
			case "waiting":
				g.waitedFor = append(g.waitedFor, rest)
			}
		})
		if word == "enter" || word == "leave" {
			_, _ = fmt.Fprintln(conn, answer)
		}
	}
	g.do(func() {
		for _, name := range fleetNames { // the dead do not act
			delete(g.inside[name], id)
		}
	})
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
		f.begun++
		m := &member{id: "m" + strconv.Itoa(f.begun)}
		m.child = lab.StartChild(t, "member", f.addr, m.id, urls)
		f.members[i] = m
	}
	for _, m := range stopped { // the next step may come when they are gone
		f.gone(t, m)
	}
	for _, m := range f.members {
		require.Eventually(t, func() bool { return f.guard.count(m.id) > 0 }, stuck, 10*time.Millisecond,
			"%s with %s has not held anything: %s", m.id, urls, m.child.Log())
	}
	// The step is complete when what the last one has left is over, and those of this
	// step have held every name: so its tokens are known to whoever comes next.
	for _, name := range fleetNames {
		before := f.guard.count(name)
		require.Eventually(t, func() bool { return f.guard.count(name) > before }, stuck, 5*time.Millisecond,
			"%s: nobody gets %s", urls, name)
	}
	f.guard.do(func() { require.Empty(t, f.guard.problems) })
}

// retire ends a member: mostly in good order, sometimes not. It returns false if it
// stands still before that for longer than what it holds lasts.
func (f *fleet) retire(t *testing.T, m *member) bool {
	switch rand.N(24) {
	case 0, 1:
		f.guard.do(func() { f.guard.killed[m.id] = true })
		m.child.Kill()
	case 2:
		m.child.Pause()
		m.resume = time.Now().Add(fleetTTL + fleetTTL/2)
		return false
	default:
		f.gone(t, m)
	}
	return true
}

// gone returns when a member has ended in good order.
func (f *fleet) gone(t *testing.T, m *member) {
	m.child.Send(t, "quit")
	if !m.resume.IsZero() {
		time.Sleep(time.Until(m.resume))
		m.child.Resume()
	}
	assert.Zero(t, m.child.Wait(t, stuck), "%s: %s", m.id, m.child.Log())
}

// standStill stops one of the two services in the middle step: the fleet waits, says
// for which, and goes on.
func (f *fleet) standStill(t *testing.T, s *service) {
	t.Helper()
	f.guard.do(func() { f.guard.waitedFor = nil })
	goOn := s.stop()
	assert.Eventually(t, func() (said bool) {
		f.guard.do(func() { said = strings.Contains(strings.Join(f.guard.waitedFor, "\n"), s.addrs[0]) })
		return said
	}, stuck, 10*time.Millisecond, "nobody says that it waits for %s", s.addrs[0])
	before := f.guard.count("turns")
	time.Sleep(fleetTTL / 2)
	assert.LessOrEqual(t, f.guard.count("turns")-before, len(f.members),
		"turns while a service stood still, and not only of those that had been let in")
	goOn()
	after := f.guard.count("turns")
	require.Eventually(t, func() bool { return f.guard.count("turns") > after+10 }, stuck, 10*time.Millisecond,
		"the fleet does not go on")
}

// end retires all in good order.
func (f *fleet) end(t *testing.T) {
	for _, m := range f.members {
		f.gone(t, m)
	}
}

// nothingLeft takes every name on each service alone.
func (f *fleet) nothingLeft(t *testing.T, urls ...string) {
	for _, u := range urls {
		c, err := backends.Open(t.Context(), u, nil)
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
	conn, err := net.Dial("tcp", p.Args[0])
	if err != nil {
		panic(err)
	}
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
	options := &locker.Options{Label: p.Args[1], OutageTimeout: 2 * stuck, Trace: &locker.Trace{
		Waiting: func(_ context.Context, e locker.Event) { say("waiting %v", e.Err) },
	}}
	var c *locker.Client
	for c == nil {
		// As whoever runs a fleet starts a program again that did not come up.
		c, err = backends.Open(ctx, p.Args[2], options)
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
		l, err := c.Lock(ctx, name)
		if err != nil {
			say("waiting %v", err)
			continue
		}
		token, _ := l.Token()
		if ask("enter %s %d %d", name, token, l.Until().UnixNano()) == "ok" {
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
