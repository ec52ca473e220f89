package locker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/bridge"
	"github.com/golockers/locker/election"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/slots"
)

// dice are shared by many goroutines.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

// chance is what becomes of a request: it may be lost, late, or carried out without an answer.
func (d *dice) chance(shaken, slow, prompt bool) string {
	n := d.n(20)
	if slow && n > 3 {
		n = 4
	}
	switch {
	case !shaken && !slow || n > 4:
		return "ok"
	case n == 4 || !shaken:
		return fmt.Sprintf("%dms", d.n(400))
	case n < 2:
		return []string{"lost", "ok lost"}[n]
	case prompt:
		return "ok silent lost"
	}
	return "ok 3s lost"
}

// believed are the leases that their holders believe in.
type believed struct {
	mu     sync.Mutex
	leases map[string][]*locker.Lease
	kept   map[*locker.Lease]time.Time // by MinHold
	keeps  bool                        // some ask for it
	leader context.Context             // of the last that was elected
	term   uint64
	wrong  []string
}

func (w *believed) add(name string, l *locker.Lease, minHold time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, other := range w.leases[name] {
		if other.Err() == nil && l.Err() == nil && !(l.Shared() && other.Shared()) {
			w.wrong = append(w.wrong, fmt.Sprintf("%s has two holders", name))
		}
		if time.Now().Before(w.kept[other]) && !(l.Shared() && other.Shared()) {
			w.wrong = append(w.wrong, fmt.Sprintf("%s is granted within a MinHold", name))
		}
		was, _ := other.Token()
		is, has := l.Token()
		if has && (is < was || is == was && !(l.Shared() && other.Shared())) {
			w.wrong = append(w.wrong, fmt.Sprintf("%s: token %d after %d", name, is, was))
		}
	}
	w.leases[name] = append(w.leases[name], l)
	// It counts from the grant, of which the reply may be slow.
	w.kept[l] = time.Now().Add(minHold - 500*time.Millisecond)
}

// leads is the beginning of a term, whose context is ctx.
func (w *believed) leads(ctx context.Context, term uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case ctx.Err() != nil: // another may have begun
		return
	case w.leader != nil && w.leader.Err() == nil:
		w.wrong = append(w.wrong, "two lead")
	case term <= w.term:
		w.wrong = append(w.wrong, fmt.Sprintf("term %d after %d", term, w.term))
	}
	w.leader, w.term = ctx, term
}

// Whatever crosses whatever: shared, MinHold, NoRenew, MaxHold, slots, election, a pair of services,
// passing, Close, lost requests and replies. CROSSINGS runs more of them.
func TestCrossings(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // two threads that fire timers of a bubble end a race test (Go 1.26)
	runs, _ := strconv.Atoi(os.Getenv("CROSSINGS"))
	for seed := range uint64(max(runs, 500)) {
		synctest.Test(t, func(t *testing.T) { cross(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func cross(t *testing.T, seed uint64) {
	d := &dice{r: rand.New(rand.NewPCG(seed, 7))}
	var traits []string
	for _, trait := range []string{"lasts", "queue", "prompt", "passes", "contended", "session", "watches", "notifies"} {
		if d.n(2) == 0 && (trait != "notifies" || !slices.Contains(traits, "queue")) {
			traits = append(traits, trait)
		}
	}
	service := newScripted(traits...)
	services, backend := []*scripted{service}, service.backend()
	if d.n(5) == 0 {
		services = append(services, newScripted(traits...))
		var err error
		backend, err = bridge.New(backend, services[1].backend())
		require.NoError(t, err)
	}
	lasts, slow, shaken := service.is("lasts") || service.is("session"), d.n(3) == 0, d.n(4) > 0
	for _, s := range services {
		s.chance = func() string { return d.chance(shaken, slow, s.is("prompt")) }
	}
	w := &believed{leases: map[string][]*locker.Lease{}, kept: map[*locker.Lease]time.Time{}, keeps: d.n(3) == 0}
	var clients []*locker.Client
	var all sync.WaitGroup
	for range 1 + d.n(3) {
		c := locktest.Must(locker.New(backend, &locker.Options{TTL: 2 * time.Second, OutageTimeout: time.Minute}))
		for range 2 + d.n(8) {
			all.Go(func() {
				for range 1 + d.n(4) {
					crossOne(t, c, d, w)
				}
			})
		}
		clients = append(clients, c)
		if !lasts { // Close gives up what it cannot release
			all.Go(func() {
				time.Sleep(time.Duration(d.n(120)) * time.Second)
				_ = c.Close() // whatever is under way
			})
		}
	}
	all.Wait()
	for _, s := range services {
		s.set("ok")
	}
	time.Sleep(time.Minute)
	for _, c := range clients {
		require.Zero(t, c.Stats().Pending+c.Stats().Waiting+c.Stats().Held)
		if err := c.Close(); lasts {
			require.NoError(t, err)
		}
	}
	require.Empty(t, w.wrong)
	for _, s := range services {
		require.Empty(t, s.wrong)
		for st, err := range s.Backend.List(t.Context(), "") {
			require.NoError(t, err)
			t.Errorf("left behind: %+v", st)
		}
	}
}

func crossOne(t *testing.T, c *locker.Client, d *dice, w *believed) {
	ctx, cancel := context.WithCancel(t.Context())
	if d.n(2) == 0 {
		ctx, cancel = context.WithTimeout(t.Context(), time.Duration(d.n(4000))*time.Millisecond)
	}
	defer cancel()
	var opts []locker.Option
	if d.n(3) == 0 && c.Guarantees().Shared != locker.SharingNone {
		opts = append(opts, locker.Shared())
	}
	for i, o := range []locker.Option{locker.MinHold(time.Duration(1+d.n(20)) * time.Second), locker.NoRenew(),
		locker.MaxHold(25 * time.Second), locker.TTL(time.Duration(1+d.n(9)) * time.Second)} {
		if d.n(6) == 0 && (i > 0 || w.keeps) {
			opts = append(opts, o)
		}
	}
	var bound []locker.Option
	latest := time.Now().Add(time.Hour)
	if d.n(3) == 0 {
		most := time.Duration(max(0, d.n(4000)-500)) * time.Millisecond
		bound = append(bound, locker.MaxWait(most))
		latest = time.Now().Add(most + 20*time.Second) // a few attempts, each of three seconds at most
	}
	name := []string{"a", "a", "a", "a", "b", "group", "leader"}[d.n(7)]
	var l *locker.Lease
	var err error
	switch how := d.n(4); {
	case name == "leader":
		stands := election.New(c, name, &election.Options{TTL: 2 * time.Second})
		err = stands.Run(ctx, func(ctx context.Context) error {
			if term, leads := election.FromContext(ctx, name); leads {
				w.leads(ctx, term)
			}
			_ = clock.Sleep(ctx, time.Duration(d.n(6000))*time.Millisecond)
			time.Sleep(time.Duration(d.n(4)*d.n(1000)) * time.Millisecond) // beyond the time of grace, too
			return nil
		})
		if err == nil {
			return
		}
	case name == "group":
		var slot *slots.Slot
		if slot, err = slots.Lock(ctx, c, name, 2, append(bound, locker.NoRenew())...); err == nil {
			opts, l, name = nil, slot.Lease, fmt.Sprint(name, slot.Number)
		}
	case how == 0:
		l, err = c.TryLock(ctx, name, opts...)
	default:
		l, err = c.Lock(ctx, name, append(bound, opts...)...)
	}
	if bound != nil && name != "leader" {
		if time.Now().After(latest) {
			t.Errorf("MaxWait is over since %v: %v", time.Since(latest), err)
		}
		if ctx.Err() == nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
			t.Errorf("an error of no context of the caller: %v", err)
		}
	}
	if err != nil {
		known := false
		for _, want := range []error{locker.ErrHeld, locker.ErrUnavailable, locker.ErrClosed,
			context.Canceled, context.DeadlineExceeded} {
			known = known || errors.Is(err, want)
		}
		if !known || strings.Contains(err.Error(), "panic") {
			t.Errorf("unexpected: %v", err)
		}
		time.Sleep(time.Duration(d.n(2000)) * time.Millisecond)
		return
	}
	w.add(name, l, locker.AskedBy(opts...).MinHold)
	time.Sleep(time.Duration(d.n(500)) * time.Millisecond)
	if d.n(25) == 0 { // its holder forgets it
		if d.n(2) == 0 {
			_ = l.Renew(ctx)
		}
		<-time.After(time.Duration(d.n(30)) * time.Second)
	}
	if until := l.Until(); l.Err() == nil && time.Now().After(until) {
		t.Errorf("held after Until")
	}
	switch n := d.n(8); {
	case n == 0: // lost or not
		w.mu.Lock()
		delete(w.kept, l) // no MinHold keeps it
		w.mu.Unlock()
		_ = l.GiveBack(ctx)
	case n < 5 || l.Err() == nil: // else the Client clears up what was lost
		_ = l.Unlock(ctx)
	}
}
