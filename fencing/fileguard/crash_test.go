//go:build linux || darwin || freebsd

package fileguard_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/fileguard"
	"github.com/golockers/locker/internal/lab"
)

// stepsOf are all steps of an act, in their order. Those that make something
// last over a power cut (fsync) are "kept", the content of the new file; "named"
// and "synced", the directory; "noted" and "resettled", the sidecar.
var stepsOf = map[string][]string{
	"write":  {"locked", "made", "filled", "kept", "named", "noted", "renamed", "synced", "settled"},
	"remove": {"locked", "named", "noted", "renamed", "synced", "settled"},
}

// stepsDuring returns the steps of what f does with g.
func stepsDuring(t *testing.T, g *fileguard.Guard, f func() error) (steps []string) {
	t.Helper()
	g.OnStep(func(step string) { steps = append(steps, step) })
	defer g.OnStep(nil)
	require.NoError(t, f())
	return steps
}

// A sync that is missing, or not where it has to be, would not be noticed until
// the power is cut.
func TestStepsAreAllThereAre(t *testing.T) {
	for what, want := range stepsOf {
		g, path := newGuard(t)
		mustWrite(t, g, 1, "1")
		assert.Equal(t, want, stepsDuring(t, g, func() error { return act(g, what, 2) }))

		// One that was stopped in the middle has left its note.
		side, _ := g.Names()
		require.NoError(t, os.WriteFile(path, []byte("2"), 0o600))
		require.NoError(t, os.WriteFile(side, fileguard.Record(2, 3, "replacing", inode(t, path)), 0o600))
		want = append([]string{"locked", "resettled"}, want[1:]...)
		assert.Equal(t, want, stepsDuring(t, g, func() error { return act(g, what, 4) }))
	}
	g, path := newGuard(t)
	assert.Equal(t, []string{"locked", "named", "noted"}, stepsDuring(t, g, func() error { return act(g, "remove", 1) }), "there is no file")
	assert.Equal(t, []string{"forgotten"}, stepsDuring(t, g, func() error { return g.Forget(t.Context()) }))

	// A new file that cannot be moved to its place: the note is taken back.
	var steps []string
	g.OnStep(func(step string) {
		if steps = append(steps, step); step == "noted" {
			require.NoError(t, os.Mkdir(path, 0o700))
		}
	})
	require.Error(t, act(g, "write", 2))
	assert.Equal(t, []string{"locked", "made", "filled", "kept", "named", "noted", "taken back"}, steps)
}

// The steps are told by what syncs: it does so.
func TestASyncThatFailsIsNoStep(t *testing.T) {
	g, path := newGuard(t)
	mustWrite(t, g, 1, "1")
	f, err := os.Open(path)
	require.NoError(t, err)
	sync := func() error { return g.Sync(f, "synced") }
	assert.Equal(t, []string{"synced"}, stepsDuring(t, g, sync))
	require.NoError(t, f.Close())
	g.OnStep(func(step string) { assert.Fail(t, "a step without a sync", step) })
	require.ErrorIs(t, sync(), os.ErrClosed)
}

// killedAt leaves what a process leaves that is killed after a step.
func killedAt(t *testing.T, path, what string, token fencing.Token, step string) {
	t.Helper()
	child := lab.StartChild(t, "crash", path, what, token.String(), step)
	require.NotZero(t, child.Wait(t, patience), "it has to be killed at %s", step)
}

func TestMarkAndContentAgreeAfterAKillAtAnyStep(t *testing.T) {
	for _, old := range []fencing.Token{0, 5} { // 0: there is no file, and no sidecar
		for what, steps := range stepsOf {
			if old == 0 && what == "remove" {
				continue
			}
			moved := false
			for _, step := range steps {
				moved = moved || step == "renamed"
				t.Run(what+" over "+old.String()+" killed at "+step, func(t *testing.T) {
					g, path := newGuard(t)
					text, mark := "", old
					if old != 0 {
						mustWrite(t, g, old, old.String())
						text = old.String()
					}
					killedAt(t, path, what, 8, step)
					if moved {
						text, mark = "8", 8
						if what == "remove" {
							text = ""
						}
					}
					assertIs(t, g, text, mark)

					// The one who goes on where it was is killed, too.
					child := lab.StartChild(t, "crash", path, "write", "1", "resettled")
					_ = child.Wait(t, patience)
					if old == 0 && !moved {
						text, mark = "1", 1
						if step == "noted" {
							text, mark = "", 0
						}
					}
					assertIs(t, g, text, mark)

					if mark > 1 {
						assertStale(t, g.WriteFile(t.Context(), mark-1, nil, 0o644), path, mark-1, mark)
						assertIs(t, g, text, mark)
					}
					mustWrite(t, g, max(mark, 1), "next")
					assertIs(t, g, "next", max(mark, 1))
					assert.Equal(t, []string{".f.fence", "f"}, names(t, filepath.Dir(path)), "nothing is left behind")
				})
			}
		}
	}
}

// What the directory and the sidecar may look like after a kill or a power cut,
// and what it means.
func TestRecordIsResolvedByWhereTheFileIs(t *testing.T) {
	g, path := newGuard(t)
	side, temp := g.Names()
	for _, c := range []struct {
		what         string
		how          string
		atTemp, atIt bool // where the file is that was to be moved
		others       bool // there are files of others at both places
		mark         fencing.Token
	}{
		{what: "not renamed", how: "replacing", atTemp: true, mark: 5},
		{what: "not renamed, over another", how: "replacing", atTemp: true, others: true, mark: 5},
		{what: "renamed", how: "replacing", atIt: true, mark: 8},
		{what: "renamed, and something at the old place", how: "replacing", atIt: true, others: true, mark: 8},
		{what: "nowhere", how: "replacing", mark: 8},
		{what: "nowhere, but others", how: "replacing", others: true, mark: 8},
		{what: "not removed", how: "removing", atIt: true, mark: 5},
		{what: "renamed away", how: "removing", atTemp: true, mark: 8},
		{what: "removed", how: "removing", mark: 8},
		{what: "removed, and others came", how: "removing", others: true, mark: 8},
	} {
		t.Run(c.what, func(t *testing.T) {
			for _, name := range []string{path, temp, path + ".keep"} {
				_ = os.Remove(name)
			}
			require.NoError(t, os.WriteFile(path+".keep", []byte("moved"), 0o600))
			number := inode(t, path+".keep")
			if c.others {
				require.NoError(t, os.WriteFile(path, []byte("another"), 0o600))
				require.NoError(t, os.WriteFile(temp, []byte("another"), 0o600))
			}
			switch {
			case c.atIt:
				require.NoError(t, os.Rename(path+".keep", path))
			case c.atTemp:
				require.NoError(t, os.Rename(path+".keep", temp))
			}
			require.NoError(t, os.WriteFile(side, fileguard.Record(5, 8, c.how, number), 0o600))
			mark, err := g.Mark(t.Context())
			require.NoError(t, err)
			assert.Equal(t, c.mark, mark)
			assertStale(t, g.WriteFile(t.Context(), 4, nil, 0o600), path, 4, c.mark)
			mark, err = g.Mark(t.Context())
			require.NoError(t, err)
			assert.Equal(t, c.mark, mark, "settled as it was read")
			mustWrite(t, g, c.mark, "next")
			assertIs(t, g, "next", c.mark)
		})
	}
}

// Children are killed at any moment, and content and mark agree all the time.
func TestMarkAndContentAgreeWhileWritersAreKilled(t *testing.T) {
	g, path := newGuard(t)
	var last fencing.Token
	for round := range 15 {
		base := strconv.Itoa(1 + 200*round)
		a := lab.StartChild(t, "race", path, base, "1000000")
		b := lab.StartChild(t, "race", path, base, "1000000")
		for _, c := range []*lab.Child{a, b} {
			c.Expect(t, "ready", patience)
			c.Send(t, "go")
		}
		end := time.Now().Add(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		for time.Now().Before(end) {
			last = agree(t, g, last)
		}
		a.Kill()
		last = agree(t, g, last)
		b.Kill()
		last = agree(t, g, last)
	}
	mustWrite(t, g, last, last.String())
	assert.Equal(t, []string{".f.fence", "f"}, names(t, filepath.Dir(path)), "nothing is left behind")
}

func TestStoppedWriterHoldsUpOthersUntilItEnds(t *testing.T) {
	lab.NeedPause(t)
	g, path := newGuard(t)
	mustWrite(t, g, 1, "one")
	child := lab.StartChild(t, "stop", path, "2")
	child.Expect(t, "inside", patience)
	child.Pause()
	assertIs(t, g, "one", 1)
	done := make(chan error)
	go func() { done <- g.WriteFile(t.Context(), 3, []byte("three"), 0o600) }()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	child.Kill()
	require.NoError(t, <-done)
	assertIs(t, g, "three", 3)
}

// A writer that is paused and goes on after its lock is another's, which is what
// all this is for.
func TestWriterThatWaitedTooLongIsRefused(t *testing.T) {
	g, path := newGuard(t)
	child := lab.StartChild(t, "stop", path, "9")
	child.Expect(t, "inside", patience)
	done := make(chan error)
	go func() { done <- g.WriteFile(t.Context(), 8, []byte("lower"), 0o600) }()
	child.Send(t, "go on")
	child.Expect(t, "done <nil>", patience)
	if err := <-done; err != nil { // it may have been first
		assertStale(t, err, path, 8, 9)
	}
	assertIs(t, g, "9", 9)
}
