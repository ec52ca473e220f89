//go:build linux || darwin || freebsd

package fileguard_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/fileguard"
	"github.com/golockers/locker/internal/lab"
)

// agree reads the file, whose content is the token that wrote it, and checks it
// against the mark, and that both have not fallen since last.
func agree(t *testing.T, g *fileguard.Guard, last fencing.Token) fencing.Token {
	t.Helper()
	text, mark, err := g.ReadFile(t.Context())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // removed, under this mark
	} else {
		require.Equal(t, mark.String(), string(text), "mark and content")
	}
	require.NoError(t, err)
	require.GreaterOrEqual(t, mark, last, "a lower token wrote after a higher one")
	return mark
}

func TestTokensNeverFallAmongRacingProcesses(t *testing.T) {
	const children, times = 4, 80
	g, path := newGuard(t)
	var cs []*lab.Child
	for range children {
		cs = append(cs, lab.StartChild(t, "race", path, "1", strconv.Itoa(times)))
	}
	for _, c := range cs {
		c.Expect(t, "ready", patience)
	}
	done := make(chan int, children)
	for _, c := range cs {
		c.Send(t, "go")
		go func() { done <- c.Wait(t, patience) }()
	}
	var last fencing.Token
	for ended := 0; ended < children; {
		select {
		case code := <-done:
			require.Zero(t, code)
			ended++
		default:
			last = agree(t, g, last)
		}
	}
	refused := 0
	for _, c := range cs {
		n, err := strconv.Atoi(c.Expect(t, "done", patience))
		require.NoError(t, err)
		refused += n
	}
	assert.NotZero(t, refused, "the test has to make them meet")
	agree(t, g, last)
	assert.Subset(t, []string{".f.fence", "f"}, names(t, filepath.Dir(path)), "nothing is left behind")
}

func TestTokensNeverFallAmongGoroutines(t *testing.T) {
	const writers, times = 8, 30
	g, _ := newGuard(t)
	done := make(chan error, writers)
	for range writers {
		go func() {
			var err error
			for n := range times {
				err = g.WriteFile(t.Context(), fencing.Token(n+1), []byte(strconv.Itoa(n+1)), 0o600)
				if err != nil && !errors.Is(err, fencing.ErrStale) {
					break
				}
				err = nil
			}
			done <- err
		}()
	}
	var last fencing.Token
	for ended := 0; ended < writers; {
		select {
		case err := <-done:
			require.NoError(t, err)
			ended++
		default:
			last = agree(t, g, last)
		}
	}
	assertIs(t, g, strconv.Itoa(times), times)
}

// Those who wait for a sidecar that is deleted must not lock the deleted one.
func TestForgetAmongWriters(t *testing.T) {
	g, path := newGuard(t)
	const writers, times = 4, 40
	done := make(chan error, writers+1)
	for range writers {
		go func() {
			var err error
			for range times {
				if err = g.WriteFile(t.Context(), 7, []byte("7"), 0o600); err != nil {
					break
				}
			}
			done <- err
		}()
	}
	go func() {
		var err error
		for range times {
			if err = g.Forget(t.Context()); err != nil {
				break
			}
		}
		done <- err
	}()
	for range writers + 1 {
		require.NoError(t, <-done)
	}
	mustWrite(t, g, 7, "7")
	assertIs(t, g, "7", 7)
	assert.Equal(t, []string{".f.fence", "f"}, names(t, filepath.Dir(path)))
}
