//go:build linux || darwin

package file_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/file"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/localfile"
	"github.com/golockers/locker/internal/locktest"
)

// share holds a name shared, or waits for it alone if the last argument says so.
func share(p *lab.Parent) {
	var opts []locker.Option
	if p.Args[2] == "shared" {
		opts = append(opts, locker.Shared(), locker.Label(p.Args[3]))
	}
	p.Say("asking")
	lease := must(clientIn(p.Args[0]).Lock(context.Background(), p.Args[1], opts...))
	token, _ := lease.Token()
	p.Say("holding %d", token)
	p.Hear()
	p.Say("unlocked %v", lease.Unlock(context.Background()))
}

// visits reads or writes a number, often: a reader must see it unchanged, and every token
// is above that of the writer before.
func visits(p *lab.Parent) {
	c, number := clientIn(p.Args[0]), p.Args[1]
	read := func() (n int, token uint64) {
		must(fmt.Sscan(string(must(os.ReadFile(number))), &n, &token))
		return n, token
	}
	p.Say("ready")
	p.Hear()
	for range must(strconv.Atoi(p.Args[2])) {
		var opts []locker.Option
		writes := rand.N(3) == 0
		if !writes {
			opts = append(opts, locker.Shared())
		}
		lease := must(c.Lock(context.Background(), "visits", opts...))
		token, _ := lease.Token()
		n, last := read()
		if token <= last {
			panic(fmt.Sprintf("token %d after a writer's %d (writes: %t)", token, last, writes))
		}
		if writes {
			// Not at once: a reader would see it.
			f := must(os.OpenFile(number, os.O_WRONLY|os.O_TRUNC, 0))
			time.Sleep(10 * time.Microsecond)
			must(fmt.Fprintln(f, n+1, token))
			_ = f.Close()
		} else if again, _ := read(); again != n {
			panic("a writer came beside a reader")
		}
		if err := lease.Unlock(context.Background()); err != nil {
			panic(err)
		}
	}
	p.Say("done")
}

// Readers and writers in several processes, of which some are killed at any moment.
func TestSharersAndWritersOfSeveralProcesses(t *testing.T) {
	dir, number := t.TempDir(), filepath.Join(t.TempDir(), "number")
	require.NoError(t, os.WriteFile(number, []byte("0 0"), 0o600))
	begin := func(times int) *lab.Child {
		c := lab.StartChild(t, "visits", dir, number, strconv.Itoa(times))
		c.Expect(t, "ready", patience)
		return c
	}
	var all []*lab.Child
	for range 3 {
		all = append(all, begin(200))
	}
	for _, c := range all {
		c.Send(t, "go")
	}
	for range 5 {
		killed := lab.StartChild(t, "knock", dir)
		killed.Expect(t, "ready", patience)
		time.Sleep(rand.N(20 * time.Millisecond))
		killed.Kill()
	}
	for _, c := range all {
		c.Expect(t, "done", patience)
	}
	c := newClient(t, dir, nil)
	l, err := c.TryLock(t.Context(), "visits")
	require.NoError(t, err)
	require.NoError(t, l.Unlock(t.Context()))
}

// knock locks and unlocks until it is killed, and changes nothing.
func knock(p *lab.Parent) {
	c := clientIn(p.Args[0])
	p.Say("ready")
	for i := 0; ; i++ {
		shared := []locker.Option{locker.Shared()}
		lease := must(c.Lock(context.Background(), "visits", shared[i%2:]...))
		_ = lease.Unlock(context.Background())
	}
}

// What processes do to each other: who shares is counted, and has one token; a writer
// that waits keeps new ones out, and nobody once it is killed.
func TestSharersOfSeveralProcesses(t *testing.T) {
	dir := t.TempDir()
	first := lab.StartChild(t, "share", dir, "n", "shared", "one")
	second := lab.StartChild(t, "share", dir, "n", "shared", "two")
	token := first.Expect(t, "holding", patience)
	assert.Equal(t, token, second.Expect(t, "holding", patience))
	b := newBackend(t, dir)
	st, err := b.Inspect(t.Context(), "n")
	require.NoError(t, err)
	assert.True(t, st.Held)
	assert.Contains(t, []string{"one", "two"}, st.Label)
	if _, err := os.Stat("/proc/locks"); err == nil {
		assert.Equal(t, 2, st.Sharers)
	}
	_, err = locktest.Break(t.Context(), b, "n")
	require.ErrorContains(t, err, "the kernel keeps the lock")

	c := newClient(t, dir, nil)
	shared := func() error {
		l, err := c.TryLock(t.Context(), "n", locker.Shared())
		if err == nil {
			err = l.Unlock(t.Context())
		}
		return err
	}
	require.NoError(t, shared())
	writer := lab.StartChild(t, "share", dir, "n", "alone")
	writer.Expect(t, "asking", patience)
	require.Eventually(t, func() bool { return shared() != nil }, patience, time.Millisecond)
	require.ErrorIs(t, shared(), locker.ErrHeld)
	writer.Kill()
	require.NoError(t, shared(), "the kernel has ended what it left")

	first.Kill() // which may have drawn the token
	l, err := c.TryLock(t.Context(), "n", locker.Shared())
	require.NoError(t, err)
	got, _ := l.Token()
	assert.Equal(t, token, strconv.FormatUint(got, 10))
	second.Send(t, "unlock")
	second.Expect(t, "unlocked <nil>", patience)
	_, err = c.TryLock(t.Context(), "n")
	require.ErrorIs(t, err, locker.ErrHeld)
	require.NoError(t, l.Unlock(t.Context()))
	l, err = c.TryLock(t.Context(), "n")
	require.NoError(t, err)
	next, _ := l.Token()
	assert.Greater(t, next, got)
}

// Those who come to a free name at the same moment have one token.
func TestFirstSharersHaveOneToken(t *testing.T) {
	dir := t.TempDir()
	for round := range 30 {
		var tokens [8]uint64
		var holds [8]locker.Hold
		var all sync.WaitGroup
		for i := range tokens {
			b := newBackend(t, dir)
			all.Go(func() {
				g, err := b.Acquire(t.Context(), locker.Request{Name: strconv.Itoa(round), Shared: true, Wait: i%2 == 0, Queued: func() {}})
				assert.NoError(t, err)
				tokens[i], holds[i] = g.Token, g.Hold
			})
		}
		all.Wait()
		for i, token := range tokens {
			require.Equal(t, tokens[0], token)
			require.NoError(t, holds[i].Release(t.Context()))
		}
	}
}

// flock(1) shares with sharers, and is kept out by what keeps them out.
func TestSharersBesideFlock(t *testing.T) {
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("there is no flock(1)")
	}
	dir := t.TempDir()
	c := newClient(t, dir, nil)
	flock := func(how string) error {
		return exec.CommandContext(t.Context(), "flock", how, "--nonblock", filepath.Join(dir, "n.lock"),
			"true").Run()
	}
	l, err := c.Lock(t.Context(), "n", locker.Shared())
	require.NoError(t, err)
	require.NoError(t, flock("--shared"))
	require.Error(t, flock("--exclusive"))
	require.NoError(t, l.Unlock(t.Context()))
	require.NoError(t, flock("--exclusive"))

	cmd := exec.CommandContext(t.Context(), "flock", "--shared", filepath.Join(dir, "n.lock"), "sh", "-c",
		"echo in; read x")
	in, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	require.NoError(t, cmd.Start())
	_, _ = out.Read(make([]byte, 3))
	_, err = c.TryLock(t.Context(), "n")
	require.ErrorIs(t, err, locker.ErrHeld)
	l, err = c.TryLock(t.Context(), "n", locker.Shared())
	require.NoError(t, err)
	require.NoError(t, in.Close())
	_ = cmd.Wait()
	_, err = c.TryLock(t.Context(), "n")
	require.ErrorIs(t, err, locker.ErrHeld)
	require.NoError(t, l.Unlock(t.Context()))
}

// Sharers that end, and whose MinHold stays, do not keep a waiting writer out for ever: from the end of one
// of them to the grant, no other comes in.
func TestWriterWaitsForTheMinHoldOfSharers(t *testing.T) {
	t.Parallel()
	const kept = 200 * time.Millisecond
	dir := t.TempDir()
	readers, writers := newBackend(t, dir), newBackend(t, dir)
	come := func() error {
		g, err := readers.Acquire(t.Context(), locker.Request{
			Name: "n", Owner: "r", TTL: time.Second, MinHold: kept, Shared: true,
		})
		if err == nil {
			var f *os.File
			require.True(t, g.Hold.(locker.Aser).As(&f))
			require.NoError(t, f.Close(), "its process dies")
		}
		return err
	}
	require.NoError(t, come())
	granted := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*kept)
	defer cancel()
	go func() {
		w := locker.Request{Name: "n", Owner: "w", TTL: time.Second, Wait: true, Queued: func() {}}
		for {
			_, err := writers.Acquire(ctx, w)
			if held := (*locker.HeldError)(nil); errors.As(err, &held) {
				time.Sleep(held.Remaining) // as the engine does
				continue
			}
			granted <- err
			return
		}
	}()
	for {
		select {
		case err := <-granted:
			require.NoError(t, err)
			return
		case <-time.After(kept / 10):
			_ = come()
		}
	}
}

// A MinHold of sharers keeps writers out, and not sharers; one that is taken back takes
// nothing of another's with it.
func TestMinHoldOfSharers(t *testing.T) {
	b := newBackend(t, t.TempDir())
	req := func(owner string, minHold time.Duration, shared bool) locker.Request {
		return locker.Request{Name: "n", Owner: owner, TTL: time.Second, MinHold: minHold, Shared: shared,
			Lost: func() {}, Queued: func() {}}
	}
	acquire := func(minHold time.Duration) locker.Hold {
		t.Helper()
		g, err := b.Acquire(t.Context(), req("a", minHold, true))
		require.NoError(t, err)
		return g.Hold
	}
	refused := func(least time.Duration) {
		t.Helper()
		_, err := b.Acquire(t.Context(), req("w", 0, false))
		var held *locker.HeldError
		require.ErrorAs(t, err, &held)
		assert.Greater(t, held.Remaining, least)
		assert.LessOrEqual(t, held.Remaining, 2*least)
	}
	dead, longer, short := acquire(time.Hour), acquire(3*time.Hour), acquire(time.Second)
	var f *os.File
	require.True(t, dead.(locker.Aser).As(&f))
	require.NoError(t, f.Close()) // as its process ends
	require.NoError(t, short.Release(t.Context()))
	st, err := b.Inspect(t.Context(), "n")
	require.NoError(t, err)
	assert.Greater(t, st.Remaining, 2*time.Hour)
	require.NoError(t, longer.Release(t.Context()))
	refused(30 * time.Minute)
	require.NoError(t, acquire(0).Release(t.Context()), "sharers go on")
	refused(30 * time.Minute)
	_, err = locktest.Break(t.Context(), b, "n")
	require.NoError(t, err)
	g, err := b.Acquire(t.Context(), req("w", time.Hour, false))
	require.NoError(t, err)
	require.True(t, g.Hold.(locker.Aser).As(&f))
	require.NoError(t, f.Close())
	_, err = b.Acquire(t.Context(), req("a", 0, true))
	require.ErrorIs(t, err, locker.ErrHeld, "a writer's MinHold keeps sharers out, too")
}

// A MinHold that nobody was given is removed, also where a writer waits, who keeps all but the last sharer from
// writing; where it cannot be, Undo says so.
func TestUndoRemovesAMinHold(t *testing.T) {
	dir := t.TempDir()
	b, writers := newBackend(t, dir), newBackend(t, dir)
	req := func(owner string, minHold time.Duration, shared bool) locker.Request {
		return locker.Request{Name: "n", Owner: owner, TTL: time.Second, MinHold: minHold, Shared: shared,
			Wait: owner == "w", Lost: func() {}, Queued: func() {}}
	}
	kept, err := b.Acquire(t.Context(), req("a", time.Hour, true))
	require.NoError(t, err)
	other, err := b.Acquire(t.Context(), req("b", 0, true))
	require.NoError(t, err)
	granted := make(chan locker.Grant, 1)
	go func() { granted <- must(writers.Acquire(t.Context(), req("w", 0, false))) }()
	waitUntilBlocked(t, 1)
	require.Error(t, kept.Hold.Undo(t.Context()), "the other sharer holds, and a writer waits")
	require.NoError(t, other.Hold.Release(t.Context()))
	undone := func() bool { return kept.Hold.Undo(t.Context()) == nil }
	require.Eventually(t, undone, patience, time.Millisecond)
	require.NoError(t, (<-granted).Hold.Release(t.Context()))
	assert.True(t, undone(), "also after that")

	for _, shared := range []bool{false, true} {
		g, err := b.Acquire(t.Context(), req("c", time.Hour, shared))
		require.NoError(t, err)
		var f *os.File
		require.True(t, g.Hold.(locker.Aser).As(&f))
		require.NoError(t, f.Close(), "so that it cannot be written to")
		require.Error(t, g.Hold.Release(t.Context()))
		require.NoError(t, g.Hold.Undo(t.Context()))
		g, err = b.Acquire(t.Context(), req("d", 0, false))
		require.NoError(t, err)
		require.NoError(t, g.Hold.Undo(t.Context()))
	}
	first, err := b.Acquire(t.Context(), req("e", time.Hour, true))
	require.NoError(t, err)
	second, err := b.Acquire(t.Context(), req("f", 2*time.Hour, true))
	require.NoError(t, err)
	require.ErrorIs(t, first.Hold.Undo(t.Context()), locker.ErrLost, "it comes back with the end of the second one")
	require.NoError(t, second.Hold.Undo(t.Context()))
	require.NoError(t, first.Hold.Undo(t.Context()))
	_, err = b.Acquire(t.Context(), req("g", 0, false))
	require.NoError(t, err)
}

// Whatever longer ones are undone, in any order, a MinHold stays that was promised beside them.
func TestUndoLeavesTheShorterMinHolds(t *testing.T) {
	b := newBackend(t, t.TempDir())
	req := locker.Request{Name: "n", Owner: "a", TTL: time.Second, Lost: func() {}, Queued: func() {}}
	for i, hours := range [][]int{{3, 1}, {3, 1, 2}, {3, 2, 1}, {2, 3, 1}, {1, 3, 2}, {2, 1, 3}, {1, 2, 3}} {
		var undone []locker.Hold
		var f *os.File
		for _, h := range hours {
			req.Name, req.MinHold, req.Shared = fmt.Sprint(i), time.Duration(h)*time.Hour, true
			g, err := b.Acquire(t.Context(), req)
			require.NoError(t, err)
			if h > 1 {
				undone = append(undone, g.Hold)
			} else {
				require.True(t, g.Hold.(locker.Aser).As(&f))
			}
		}
		for range 2 {
			for _, h := range undone {
				_ = h.Undo(t.Context())
			}
		}
		require.NoError(t, f.Close(), "as its process dies")
		req.MinHold, req.Shared = 0, false
		_, err := b.Acquire(t.Context(), req)
		var held *locker.HeldError
		require.ErrorAs(t, err, &held, "%v", hours)
		assert.Greater(t, held.Remaining, 59*time.Minute, "%v", hours)
	}
}

// A writer that waits for a name that was never shared before keeps sharers out, from the first one on.
func TestWriterOfANameThatWasNeverShared(t *testing.T) {
	dir := t.TempDir()
	f := must(os.OpenFile(filepath.Join(dir, "n.lock"), os.O_RDWR|os.O_CREATE, 0o600))
	defer f.Close()
	require.NoError(t, localfile.Flock(f, localfile.Shared)) // as flock(1) does
	b := newBackend(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := b.Acquire(ctx, locker.Request{Name: "n", Owner: "w", TTL: time.Second, Wait: true, Queued: func() {}})
		left <- err
	}()
	waitUntilBlocked(t, 1)
	reads := locker.Request{Name: "n", Owner: "r", TTL: time.Second, Shared: true, Queued: func() {}}
	_, err := b.Acquire(t.Context(), reads)
	require.ErrorIs(t, err, locker.ErrHeld)
	cancel()
	require.ErrorIs(t, <-left, context.Canceled)
	g, err := b.Acquire(t.Context(), reads)
	require.NoError(t, err, "it keeps nobody out when it has left")
	require.NoError(t, g.Hold.Release(t.Context()))
}

// A waiter that is stopped keeps the turn, and does not take the lock: those behind it do. A writer gets it from the
// kernel, and a sharer finds it.
func TestWaiterThatIsStoppedKeepsOutNobodyForEver(t *testing.T) {
	lab.NeedPause(t)
	t.Cleanup(func() { waitUntilBlocked(t, 0) })
	for _, kind := range []string{"alone", "shared"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			b := newBackend(t, dir)
			holder := mustLock(t, newClientOf(t, b, nil), "n")
			stopped := lab.StartChild(t, "share", dir, "n", kind, "stopped")
			stopped.Expect(t, "asking", patience)
			require.Eventually(t, func() bool {
				turn, err := os.Open(filepath.Join(dir, "n.turn"))
				if err != nil {
					return false
				}
				defer turn.Close()
				return localfile.Flock(turn, localfile.Exclusive|localfile.NoWait) != nil
			}, patience, time.Millisecond)
			stopped.Pause()
			quickest := patience
			for range 5 {
				got := make(chan *locker.Lease, 1)
				go func() { got <- mustLock(t, newClientOf(t, b, nil), "n") }()
				require.Eventually(t, func() bool { n, _ := b.Waiters("n"); return n == 1 }, patience, time.Millisecond)
				began := time.Now()
				require.NoError(t, holder.Unlock(t.Context()))
				holder = <-got
				quickest = min(quickest, time.Since(began))
			}
			assert.Less(t, quickest, 300*time.Millisecond, "it looks, instead of being told")
			shared := make(chan *locker.Lease, 1)
			go func() { shared <- mustLock(t, newClientOf(t, b, nil), "n", locker.Shared()) }()
			require.Eventually(t, func() bool { _, n := b.Waiters("n"); return n == 1 }, patience, time.Millisecond)
			require.NoError(t, holder.Unlock(t.Context()))
			require.NoError(t, (<-shared).Unlock(t.Context()))
			stopped.Resume()
			stopped.Expect(t, "holding", patience)
		})
	}
}

// Sharers that waited, each with another turn since one was deleted, have one token all the same.
func TestTokenOfSharersWhoseTurnWasDeleted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := []*file.Backend{newBackend(t, dir), newBackend(t, dir)}
	req := locker.Request{Name: "n", Owner: "r", TTL: time.Second, Queued: func() {}}
	for range 20 {
		w, err := b[0].Acquire(t.Context(), req)
		require.NoError(t, err)
		var grants [2]locker.Grant
		var waits sync.WaitGroup
		for i := range grants {
			reads := req
			reads.Shared, reads.Wait = true, true
			waits.Go(func() {
				var err error
				grants[i], err = b[i].Acquire(t.Context(), reads)
				assert.NoError(t, err)
			})
			require.Eventually(t, func() bool {
				turn, err := os.Open(filepath.Join(dir, "n.turn"))
				if err != nil {
					return false
				}
				defer turn.Close()
				return localfile.Flock(turn, localfile.Exclusive|localfile.NoWait) != nil
			}, 5*time.Second, time.Millisecond)
			if i == 0 {
				require.NoError(t, os.Remove(filepath.Join(dir, "n.turn")))
			}
		}
		require.NoError(t, w.Hold.Release(t.Context()))
		waits.Wait()
		require.Equal(t, grants[0].Token, grants[1].Token)
		for _, g := range grants {
			require.NoError(t, g.Hold.Release(t.Context()))
		}
	}
}

// The number of sharers is bounded, and nothing of them is left.
func TestSharersAtTheBound(t *testing.T) {
	dir := t.TempDir()
	locktest.MaxSharers(t, newBackend(t, dir), nil)
	var bytes int64
	for _, e := range must(os.ReadDir(dir)) {
		bytes += must(e.Info()).Size()
		assert.True(t, strings.HasPrefix(e.Name(), "n."), e.Name())
	}
	assert.Less(t, bytes, int64(2048))
}
