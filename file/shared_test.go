//go:build linux || darwin

package file_test

import (
	"context"
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
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/file"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/localfile"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/refusal"
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

// What processes do to each other: who shares is counted, and has one token; a writer
// that waits keeps new ones out, and nobody once it is killed.
func TestSharersOfSeveralProcesses(t *testing.T) {
	dir := t.TempDir()
	first := lab.StartChild(t, "share", dir, "n", "shared", "one")
	token := first.Expect(t, "holding", patience)
	second := lab.StartChild(t, "share", dir, "n", "shared", "two")
	assert.Equal(t, token, second.Expect(t, "holding", patience))
	b := newBackend(t, dir)
	st, err := b.Inspect(t.Context(), "n")
	require.NoError(t, err)
	assert.Equal(t, "one", st.Label)
	if _, err := os.Stat("/proc/locks"); err == nil {
		assert.Equal(t, 2, st.Sharers)
	}
	require.ErrorContains(t, b.Break(t.Context(), st), "the kernel keeps the lock")

	reads, writes := request(true, 0), request(false, 0)
	shared := func() error {
		g, err := locktest.Ask(t.Context(), b, reads)
		if err == nil {
			err = g.Hold.Release(t.Context(), 0)
		}
		return err
	}
	require.NoError(t, shared())
	writer := lab.StartChild(t, "share", dir, "n", "alone")
	writer.Expect(t, "asking", patience)
	require.Eventually(t, func() bool { return shared() != nil }, patience, time.Millisecond)
	require.ErrorIs(t, shared(), driver.ErrHeld)
	writer.Kill()
	require.NoError(t, shared(), "the kernel has ended what it left")

	first.Kill() // which has drawn the token
	g := must(locktest.Ask(t.Context(), b, reads))
	assert.Equal(t, token, strconv.FormatUint(g.Token, 10))
	assert.Empty(t, must(b.Inspect(t.Context(), "n")).Label, "that of one who lives")
	second.Send(t, "unlock")
	second.Expect(t, "unlocked <nil>", patience)
	_, err = locktest.Ask(t.Context(), b, writes)
	require.ErrorIs(t, err, driver.ErrHeld)
	require.NoError(t, g.Hold.Release(t.Context(), 0))
	assert.Greater(t, must(locktest.Ask(t.Context(), b, writes)).Token, g.Token)
}

// Those who come to a free name at the same moment have one token, also beside flock(1), where none of them is alone.
func TestFirstSharersHaveOneToken(t *testing.T) {
	dir := t.TempDir()
	var b [8]*file.Backend
	for i := range b {
		b[i] = newBackend(t, dir)
	}
	for round := range 60 {
		req := waiting(true) // a busy machine may refuse one that only tries
		req.Name = strconv.Itoa(round)
		f := must(os.OpenFile(filepath.Join(dir, req.Name+".lock"), os.O_RDWR|os.O_CREATE, 0o600))
		if round%2 == 0 {
			require.NoError(t, localfile.Flock(f, localfile.Shared))
		}
		var grants [len(b)]driver.Grant
		var all sync.WaitGroup
		for i := range b {
			all.Go(func() { grants[i] = must(locktest.Ask(t.Context(), b[i], req)) })
		}
		all.Wait()
		localfile.LetGo(f)
		for _, g := range grants {
			require.Equal(t, grants[0].Token, g.Token)
			require.NoError(t, g.Hold.Release(t.Context(), 0))
		}
	}
}

// flock(1) shares with sharers, and is kept out by what keeps them out.
func TestSharersBesideFlock(t *testing.T) {
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("there is no flock(1)")
	}
	b := newBackend(t, t.TempDir())
	path := filepath.Join(b.Dir(), "n.lock")
	flock := func(how string) error {
		return exec.CommandContext(t.Context(), "flock", how, "--nonblock", path, "true").Run()
	}
	g := must(locktest.Ask(t.Context(), b, request(true, 0)))
	require.NoError(t, flock("--shared"))
	require.Error(t, flock("--exclusive"))
	require.NoError(t, g.Hold.Release(t.Context(), 0))
	require.NoError(t, flock("--exclusive"))

	cmd := exec.CommandContext(t.Context(), "flock", "--shared", path, "sh", "-c", "echo in; read x")
	in, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	require.NoError(t, cmd.Start())
	_, _ = out.Read(make([]byte, 3))
	_, err := locktest.Ask(t.Context(), b, request(false, 0))
	require.ErrorIs(t, err, driver.ErrHeld)
	g, other := must(locktest.Ask(t.Context(), b, request(true, 0))), must(locktest.Ask(t.Context(), b, request(true, 0)))
	require.Equal(t, g.Token, other.Token, "neither of them was alone")
	require.NoError(t, other.Hold.Release(t.Context(), 0))
	require.NoError(t, in.Close())
	_ = cmd.Wait()
	_, err = locktest.Ask(t.Context(), b, request(false, 0))
	require.ErrorIs(t, err, driver.ErrHeld)
}

// Sharers that end, and whose MinHold stays, do not keep a waiting writer out for ever: from the end of one
// of them to the grant, no other comes in.
func TestWriterWaitsForTheMinHoldOfSharers(t *testing.T) {
	t.Parallel()
	const kept = 200 * time.Millisecond
	dir := t.TempDir()
	readers, writers := newBackend(t, dir), newBackend(t, dir)
	come := func() error {
		g, err := locktest.Ask(t.Context(), readers, request(true, kept))
		if err == nil {
			dies(t, g.Hold)
		}
		return err
	}
	require.NoError(t, come())
	granted := make(chan error, 1)
	go func() {
		_, err := locktest.Ask(t.Context(), writers, waiting(false))
		granted <- err
	}()
	late := time.After(patience)
	for {
		select {
		case err := <-granted:
			require.NoError(t, err)
			return
		case <-late:
			require.Fail(t, "the writer waits for ever")
		case <-time.After(kept / 10):
			_ = come()
		}
	}
}

// A MinHold of sharers keeps writers out, and not sharers; one that is taken back takes nothing of another's with
// it. In a history, "a 3h" asks for the lock shared, with that MinHold, and "w 1h" alone, "a dies" is the end of its
// process, and "kept 1h" says for how long one is refused that wants it alone.
func TestMinHoldOfSharers(t *testing.T) {
	for _, history := range []string{
		"a 1h, b 3h, c 0s, a dies, c leaves, seen 3h, b dies, kept 3h, broken, free",
		"w 1h, w dies, kept 1h, shut",
		"a 1h, b 0s, a undone, b leaves, free",
		"a 1h, a undone, free",
		"w 1h, w undone, free",
		"a 1h, a closed, a undone, free",
		"w 1h, w closed, w undone, free",
		"w 1h, w closed, w undone, a 2h, w undone, a dies, kept 2h",
		"w 1h, w closed, broken, a 2h, a dies, w undone, kept 2h",
		"a 0s, b 1h, a leaves, b undone, free",
		"a 1h, b 2h, b dies, a not undone, kept 2h",
		"a 3h, b 1h, b dies, a not undone, kept 3h, x 0s, x leaves, kept 3h",
		"a 1h, b 3h, c 2h, a dies, c not undone, b not undone, kept 3h, broken, free",
		"a 1ns, b 1h, b undone, a leaves, free",
		"a 1ns, b 1h, c 3h, b not undone, c not undone, a leaves, kept 3h",
	} {
		b := newBackend(t, t.TempDir())
		holds := map[string]driver.Hold{}
		for step := range strings.SplitSeq(history, ", ") {
			who, what, _ := strings.Cut(step, " ")
			about := func(left time.Duration) {
				assert.InDelta(t, must(time.ParseDuration(what)), left, float64(10*time.Minute), "%s: %s", history, step)
			}
			var err error
			switch step {
			case "free":
				_, err = locktest.Ask(t.Context(), b, request(false, 0))
			case "shut":
				_, err = locktest.Ask(t.Context(), b, request(true, 0))
				require.ErrorIs(t, err, driver.ErrHeld)
				continue
			case "broken":
				_, err = locktest.Break(t.Context(), b, "n")
			case who + " dies":
				dies(t, holds[who])
			case who + " closed": // so that it cannot be written to
				dies(t, holds[who])
				assert.Error(t, holds[who].Release(t.Context(), 0))
			case who + " leaves":
				err = holds[who].Release(t.Context(), 0)
			case who + " undone":
				err = holds[who].Undo(t.Context())
			case who + " not undone":
				assert.Error(t, holds[who].Undo(t.Context()), "%s: %s", history, step)
			case "seen " + what:
				st, err := b.Inspect(t.Context(), "n")
				require.NoError(t, err)
				about(st.Remaining)
			case "kept " + what:
				_, err := locktest.Ask(t.Context(), b, request(false, 0))
				var held *refusal.Error
				require.ErrorAs(t, err, &held, "%s: %s", history, step)
				about(held.Remaining)
			default:
				g, failed := locktest.Ask(t.Context(), b, request(who != "w", must(time.ParseDuration(what))))
				holds[who], err = g.Hold, failed
			}
			require.NoError(t, err, "%s: %s", history, step)
		}
	}
}

// Sharers who come when nobody of those before is left are others: who breaks those does not break them.
func TestSharersAfterAPauseAreOthers(t *testing.T) {
	b := newBackend(t, t.TempDir())
	for _, wait := range []bool{false, true} {
		req := request(true, 50*time.Millisecond)
		died := must(locktest.Ask(t.Context(), b, req))
		old := must(b.Inspect(t.Context(), "n"))
		require.True(t, old.Held)
		dies(t, died.Hold)
		require.Eventually(t, func() bool { return !must(b.Inspect(t.Context(), "n")).Held }, patience, time.Millisecond)
		req.MinHold, req.Wait = time.Hour, wait
		next := must(locktest.Ask(t.Context(), b, req))
		assert.Greater(t, next.Token, died.Token)
		beside := must(locktest.Ask(t.Context(), b, req))
		assert.Equal(t, next.Token, beside.Token)
		dies(t, next.Hold)
		dies(t, beside.Hold)
		require.NoError(t, b.Break(t.Context(), old))
		assert.True(t, must(b.Inspect(t.Context(), "n")).Held, "its MinHold is there")
		must(locktest.Break(t.Context(), b, "n"))
	}
}

// A waiter that is stopped keeps the turn, and does not take the lock: writers behind it get it from the kernel.
func TestWaiterThatIsStoppedKeepsOutNoWriter(t *testing.T) {
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
			waitUntilTurnIsTaken(t, dir)
			stopped.Pause()
			for range 5 {
				got := make(chan *locker.Lease, 1)
				go func() { got <- mustLock(t, newClientOf(t, b, nil), "n") }()
				require.Eventually(t, func() bool { n, _ := b.Waiters("n"); return n == 1 }, patience, time.Millisecond)
				require.NoError(t, holder.Unlock(t.Context()))
				holder = <-got
			}
			require.NoError(t, holder.Unlock(t.Context()))
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
	for range 20 {
		w := must(locktest.Ask(t.Context(), b[0], request(false, 0)))
		var grants [2]driver.Grant
		var waits, others sync.WaitGroup
		end := make(chan struct{})
		for i := range grants {
			waits.Go(func() { grants[i] = must(locktest.Ask(t.Context(), b[i], waiting(true))) })
			waitUntilTurnIsTaken(t, dir)
			if i == 0 {
				require.NoError(t, os.Remove(filepath.Join(dir, "n.turn")))
			}
		}
		for range 8 { // others, as flock(1), because of whom neither is alone
			f := must(os.Open(filepath.Join(dir, "n.lock")))
			others.Go(func() {
				_ = localfile.Flock(f, localfile.Shared)
				<-end
				localfile.LetGo(f)
			})
		}
		require.NoError(t, w.Hold.Release(t.Context(), 0))
		waits.Wait()
		require.Equal(t, grants[0].Token, grants[1].Token)
		for _, g := range grants {
			require.NoError(t, g.Hold.Release(t.Context(), 0))
		}
		close(end)
		others.Wait()
	}
}

func waitUntilTurnIsTaken(t *testing.T, dir string) {
	t.Helper()
	require.Eventually(t, func() bool {
		turn, err := os.Open(filepath.Join(dir, "n.turn"))
		if err != nil {
			return false
		}
		defer turn.Close()
		return localfile.Flock(turn, localfile.Exclusive|localfile.NoWait) != nil
	}, patience, time.Millisecond)
}

// The number of sharers is bounded, and nothing is left of them, nor of one that is refused.
func TestProveSharersAtTheBound(t *testing.T) {
	lab.NeedProve(t)
	b := newBackend(t, t.TempDir())
	dies(t, must(locktest.Ask(t.Context(), b, request(false, time.Hour))).Hold)
	for range driver.MaxSharers + 1 {
		_, err := locktest.Ask(t.Context(), b, request(true, 0))
		require.ErrorIs(t, err, driver.ErrHeld)
	}
	must(locktest.Break(t.Context(), b, "n"))
	locktest.MaxSharers(t, b, func() {
		_, err := locktest.Ask(t.Context(), b, request(true, time.Hour))
		require.ErrorIs(t, err, driver.ErrRefused)
		assert.Zero(t, must(b.Inspect(t.Context(), "n")).Remaining)
	})
	_, err := locktest.Ask(t.Context(), b, request(true, 0))
	require.NoError(t, err, "those who left are not counted")
	var bytes int64
	for _, e := range must(os.ReadDir(b.Dir())) {
		bytes += must(e.Info()).Size()
		assert.True(t, strings.HasPrefix(e.Name(), "n."), e.Name())
	}
	assert.Less(t, bytes, int64(2048))
}
