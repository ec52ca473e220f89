package main

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// awkward is a service that the tests of this file make difficult.
type awkward struct {
	*memory.Backend
	acquire func(context.Context, driver.Grant) (driver.Grant, error)
	list    func(context.Context) error
}

func (a awkward) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	g, err := a.Backend.Acquire(ctx, req)
	if err == nil && g.Hold != nil && a.acquire != nil {
		return a.acquire(ctx, g)
	}
	return g, err
}

func (a awkward) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	return func(yield func(driver.State, error) bool) {
		for st, err := range a.Backend.List(ctx, prefix) {
			if !yield(st, err) {
				return
			}
		}
		if err := a.list(ctx); err != nil {
			yield(driver.State{}, err)
		}
	}
}

// serve lets the scheme awkward open a service for one test.
func serve(t *testing.T, a awkward) {
	openers["awkward"] = func(_ context.Context, u *driver.URL, _ driver.Settings) (driver.Backend, error) {
		return a, u.Check()
	}
	t.Cleanup(func() { delete(openers, "awkward") })
}

// On a Redis with many keys, a list takes long, and not everybody may ask for it. Whoever asks for one lock is told of
// it all the same.
func TestInspectDoesNotDependOnAList(t *testing.T) {
	for name, test := range map[string]struct {
		list func(context.Context) error
		says string
	}{
		"slow":    {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "not listed them in time"},
		"hangs":   {func(context.Context) error { select {} }, "not listed them in time"},
		"refused": {func(context.Context) error { return locker.ErrRefused }, "refuse"},
		"breaks":  {func(context.Context) error { return locker.ErrUnavailable }, "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			memory := memory.New()
			serve(t, awkward{Backend: memory, list: test.list})
			client, err := locker.New(memory, nil)
			require.NoError(t, err)
			for _, held := range []string{"b", "a/0"} { // a slot that the list would have, and more of them perhaps
				_, err = client.Lock(t.Context(), held)
				require.NoError(t, err)
			}
			for args, want := range map[string]string{
				"inspect a b c": `\A"a": free\n"b": held by .*\n"c": free\n\z`,
				"inspect b":     `\A"b": held by .*\n\z`,
				"break --yes a": `\A"a": free\n\z`,
			} {
				var out, says strings.Builder
				cmd := newRoot()
				cmd.SetOut(&out)
				cmd.SetErr(&says)
				cmd.SetArgs(append(strings.Fields(args), "-b", "awkward://x"))
				began := time.Now()
				require.NoError(t, cmd.Execute(), args)
				assert.Less(t, time.Since(began), 8*time.Second, args)
				assert.Regexp(t, want, out.String())
				switch args {
				case "inspect b":
					assert.Empty(t, says.String(), args)
				case "inspect a b c":
					assert.Regexp(t, `\Alocker: the slots of "a", "c" were not looked at: (the )[^"]*`+test.says+`.*\n\z`, says.String())
				default:
					assert.Regexp(t, `\Alocker: the slots of "a" were not looked at: (the )[^"]*`+test.says+`.*\n\z`, says.String())
				}
			}
		})
	}
}

// slowUndo needs a while to remove a lock, as over a connection that has to be made.
type slowUndo struct{ driver.Hold }

func (s slowUndo) Undo(ctx context.Context) error {
	time.Sleep(1500 * time.Millisecond)
	return s.Hold.Undo(ctx)
}

// A lock that was granted without an answer would stay until the end of its --min-hold, and no host would do the work.
func TestTryTakesBackWhatWasNotAnsweredInItsTime(t *testing.T) {
	memory := memory.New()
	serve(t, awkward{Backend: memory, acquire: func(ctx context.Context, g driver.Grant) (driver.Grant, error) {
		<-ctx.Done()
		g.Hold = slowUndo{g.Hold}
		return g, ctx.Err()
	}})
	minute := func(flag string) bool { return flag == "try" }
	s := &session{name: "a", notes: newNotes(), began: time.Now().Add(time.Second - tryTimeout + tryClear),
		flags: &runFlags{backend: "awkward://x", try: true, minHold: time.Minute, given: minute}}
	var e *exitError
	require.ErrorAs(t, s.acquire([]string{"true"}), &e)
	assert.Equal(t, statusUnavailable, e.status)
	st, err := memory.Inspect(t.Context(), "a")
	require.NoError(t, err)
	assert.False(t, st.Held, "a lock of a command that was not run")
	assert.True(t, st.KeptUntil.IsZero())
	assert.Less(t, time.Since(s.began), tryTimeout)
}

// --wait bounds an outage instead of the URL's outage_timeout, however that is written.
func TestWaitOverridesTheOutageTimeoutOfTheURL(t *testing.T) {
	for _, value := range []string{"1ms", "0.001s", ".5ms", "100us", "0h0m0.001s", "0d1ms"} {
		serve(t, awkward{Backend: memory.New(), acquire: func(_ context.Context, g driver.Grant) (driver.Grant, error) {
			return g, driver.ErrUnavailable
		}})
		const wait = 300 * time.Millisecond
		s := &session{name: "a", notes: newNotes(), began: time.Now(), flags: &runFlags{
			backend: backendFlag("awkward://x?outage_timeout=" + value), wait: wait,
			given: func(flag string) bool { return flag == "wait" },
		}}
		var e *exitError
		require.ErrorAs(t, s.acquire([]string{"true"}), &e, value)
		assert.Equal(t, statusUnavailable, e.status, "%s: %v", value, e)
		assert.GreaterOrEqual(t, time.Since(s.began), wait, value)
	}
}
