package locker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
	"github.com/golockers/locker/slots"
)

// crossed is a service in memory whose requests and replies are lost, late, or refused by chance.
type crossed struct {
	*memory.Backend
	r             *dice
	queue, prompt bool
	passes        bool
	shaken        atomic.Bool // faults happen
	lasts, slow   bool        // what nobody removes stays for ever; every request takes its time
}

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

func (b *crossed) Guarantees() locker.Guarantees {
	g := b.Backend.Guarantees()
	g.Queue = b.queue
	return g
}

func (b *crossed) Prompt() bool { return b.prompt }

// over plays one request: it may be lost, late, or carried out without an answer.
func (b *crossed) over(ctx context.Context, carryOut func()) error {
	n := b.r.n(20)
	if b.slow && n > 3 {
		n = 4
	}
	switch {
	case !b.shaken.Load() && !b.slow || n > 4:
		carryOut()
		return nil
	case n == 4 || !b.shaken.Load(): // slow
		time.Sleep(time.Duration(b.r.n(400)) * time.Millisecond)
		carryOut()
		return nil
	case n == 0: // lost
		return errDown
	case n == 1: // the reply is lost
		carryOut()
		return errDown
	}
	carryOut() // it hangs, and is carried out
	if !b.prompt {
		time.Sleep(3 * time.Second)
		return errDown
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(3 * time.Second): // a backend bounds each request
		return errDown
	}
}

type crossedHold struct {
	b    *crossed
	undo locker.Undo
	hold locker.Hold // nil: not granted
}

func (h *crossedHold) Renew(ctx context.Context) (v locker.Validity, err error) {
	since := time.Now()
	if lost := h.b.over(ctx, func() { v, err = h.hold.Renew(ctx) }); lost != nil {
		return locker.Validity{}, lost
	}
	v.Since = since
	return v, err
}

func (h *crossedHold) Release(ctx context.Context) (err error) {
	lost := h.b.over(ctx, func() {
		if err = locker.ErrLost; h.hold != nil {
			err = h.hold.Release(ctx)
		}
	})
	if lost != nil {
		return lost
	}
	return err
}

func (h *crossedHold) Undo(ctx context.Context) error {
	err := h.Release(ctx)
	if h.b.lasts && errors.Is(err, locker.ErrLost) {
		return nil
	} else if h.b.lasts {
		return err
	}
	return h.undo.Undo(ctx, func(context.Context) error { return err })
}

func (b *crossed) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	since := time.Now()
	req.Wait = req.Wait && b.queue
	h := &crossedHold{b: b}
	h.undo.Sends(max(req.TTL, req.MinHold))
	var g locker.Grant
	var err error
	lost := b.over(ctx, func() { g, err = b.Backend.Acquire(ctx, req) })
	h.hold = g.Hold
	h.undo.Sent(false) // what was lost does not come
	switch {
	case lost != nil:
		return locker.Grant{Hold: h}, lost
	case err != nil:
		return locker.Grant{}, err
	}
	g.Hold = locker.Hold(h)
	if b.passes {
		g.Hold = crossedPass{h}
	}
	if !req.Wait {
		g.Validity.Since = since
	}
	return g, nil
}

type crossedPass struct{ *crossedHold }

func (h crossedPass) Pass(ctx context.Context, next locker.Request, yield bool) (locker.Grant, error) {
	if err := h.Release(ctx); err != nil {
		return locker.Grant{}, err
	}
	if yield && h.b.r.n(3) == 0 { // others wait
		return locker.Grant{}, nil
	}
	g, err := h.b.Acquire(ctx, next)
	if errors.Is(err, locker.ErrHeld) {
		return locker.Grant{}, nil
	}
	return g, err
}

// believed are the leases that their holders believe in.
type believed struct {
	mu     sync.Mutex
	leases map[string][]*locker.Lease
	kept   map[*locker.Lease]time.Time // by MinHold
	keeps  bool                        // some ask for it
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
		is, _ := l.Token()
		if is < was || is == was && !(l.Shared() && other.Shared()) {
			w.wrong = append(w.wrong, fmt.Sprintf("%s: token %d after %d", name, is, was))
		}
	}
	w.leases[name] = append(w.leases[name], l)
	w.kept[l] = time.Now().Add(minHold - 500*time.Millisecond) // it counts from the grant, of which the reply may be slow
}

// Whatever crosses whatever: shared, MinHold, NoRenew, MaxHold, slots, passing, Close, lost
// requests and replies. CROSSINGS runs more of them.
func TestCrossings(t *testing.T) {
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
	service, lasts := memory.NewExpiring(), d.n(2) == 0
	if lasts {
		service = memory.New()
	}
	b := &crossed{Backend: service, r: d, lasts: lasts, queue: d.n(2) == 0, prompt: d.n(2) == 0, passes: d.n(2) == 0, slow: d.n(3) == 0}
	b.shaken.Store(d.n(4) > 0)
	w := &believed{leases: map[string][]*locker.Lease{}, kept: map[*locker.Lease]time.Time{}, keeps: d.n(3) == 0}
	var clients []*locker.Client
	var all sync.WaitGroup
	for range 1 + d.n(3) {
		c := locker.New(b, &locker.Options{TTL: 2 * time.Second, Patience: time.Minute})
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
	b.shaken.Store(false)
	time.Sleep(time.Minute)
	for _, c := range clients {
		require.Zero(t, c.Stats().Pending+c.Stats().Waiting+c.Stats().Held)
		if err := c.Close(); lasts {
			require.NoError(t, err)
		}
	}
	require.Empty(t, w.wrong)
	for st, err := range service.List(t.Context(), "") {
		require.NoError(t, err)
		t.Errorf("left behind: %+v", st)
	}
}

func crossOne(t *testing.T, c *locker.Client, d *dice, w *believed) {
	ctx, cancel := context.WithCancel(t.Context())
	if d.n(2) == 0 {
		ctx, cancel = context.WithTimeout(t.Context(), time.Duration(d.n(4000))*time.Millisecond)
	}
	defer cancel()
	var opts []locker.Option
	if d.n(3) == 0 {
		opts = append(opts, locker.Shared())
	}
	for i, o := range []locker.Option{locker.MinHold(time.Duration(1+d.n(20)) * time.Second), locker.NoRenew(),
		locker.MaxHold(25 * time.Second), locker.TTL(time.Duration(1+d.n(9)) * time.Second)} {
		if d.n(6) == 0 && (i > 0 || w.keeps) {
			opts = append(opts, o)
		}
	}
	name := []string{"a", "a", "a", "a", "b", "group"}[d.n(6)]
	var l *locker.Lease
	var err error
	switch how := d.n(4); {
	case name == "group":
		var slot *slots.Slot
		if slot, err = slots.Lock(ctx, c, name, 2, locker.NoRenew()); err == nil {
			opts, l, name = nil, slot.Lease, fmt.Sprint(name, slot.Number)
		}
	case how == 0:
		l, err = c.TryLock(ctx, name, opts...)
	default:
		l, err = c.Lock(ctx, name, opts...)
	}
	if err != nil {
		known := false
		for _, want := range []error{locker.ErrHeld, locker.ErrUnavailable, locker.ErrClosed, context.Canceled, context.DeadlineExceeded} {
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
	if l.Err() == nil || d.n(2) == 0 { // else the Client clears up what was lost
		_ = l.Unlock(ctx)
	}
}
