//go:build linux || darwin || freebsd

package fileguard_test

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/fileguard"
	"github.com/golockers/locker/internal/guardtest"
	"github.com/golockers/locker/internal/lab"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) {
	lab.RunRole(lab.Roles{"crash": crash, "user": user}) // their first argument is the guarded path
	goleak.VerifyTestMain(m)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// act writes the token's own digits, removes the file, or raises its mark.
func act(g *fileguard.Guard, what string, token fencing.Token) error {
	switch what {
	case "remove":
		return g.Remove(context.Background(), token)
	case "raise":
		return g.Raise(context.Background(), token)
	}
	return g.WriteFile(context.Background(), token, []byte(token.String()), 0o644)
}

// crash acts with tokens that rise, until it is killed after a step, which it
// does by itself if it is told which.
func crash(p *lab.Parent) {
	g := must(fileguard.New(p.Args[0]))
	g.OnStep(func(step string) {
		if step == p.Args[3] {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	for token := must(fencing.Parse(p.Args[2])); ; token++ {
		if err := act(g, p.Args[1], token); err != nil && !errors.Is(err, fencing.ErrStale) {
			p.Say("error %v", err)
		}
	}
}

// user is another user of the host, who acts once.
func user(p *lab.Parent) {
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
		panic(err)
	}
	p.Say("done %v", act(must(fileguard.New(p.Args[0])), p.Args[1], must(fencing.Parse(p.Args[2]))))
}

// newGuard returns a guard of a file in a directory of its own.
func newGuard(t testing.TB) (*fileguard.Guard, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	return guardOf(t, path), path
}

func guardOf(t testing.TB, path string) *fileguard.Guard {
	t.Helper()
	g, err := fileguard.New(path)
	require.NoError(t, err)
	return g
}

func mustWrite(t testing.TB, g *fileguard.Guard, token fencing.Token, text string) {
	t.Helper()
	require.NoError(t, g.WriteFile(t.Context(), token, []byte(text), 0o644))
}

func side(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".fence")
}

func contentOf(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	return string(data)
}

// markOf is what people read in the sidecar; 0 while it is written.
func markOf(t testing.TB, path string) fencing.Token {
	t.Helper()
	_, rest, _ := strings.Cut(contentOf(t, side(path)), "\nmark ")
	digits, _, _ := strings.Cut(rest, "\n")
	mark, _ := fencing.Parse(digits)
	return mark
}

// list is all that there is to see in a directory.
func list(t testing.TB, dir string) map[string]any {
	t.Helper()
	all := map[string]any{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		st, ok := info.Sys().(*syscall.Stat_t)
		require.True(t, ok)
		all[e.Name()] = [...]any{contentOf(t, filepath.Join(dir, e.Name())), info.Mode(), st.Ino, st.Uid,
			st.Gid}
	}
	return all
}

func TestRemoveIsAWriteThatKeepsTheMark(t *testing.T) {
	g, path := newGuard(t)
	mustWrite(t, g, 9, "nine")
	before := list(t, filepath.Dir(path))
	guardtest.Stale(t, act(guardOf(t, path), "remove", 8), path, 8, 9)
	assert.ErrorIs(t, act(g, "remove", 0), fencing.ErrMissing)
	assert.Equal(t, before, list(t, filepath.Dir(path)))
	for range 2 { // the second time there is nothing to remove
		require.NoError(t, act(g, "remove", 10))
		assert.NoFileExists(t, path)
	}
	guardtest.Stale(t, act(g, "write", 9), path, 9, 10)
	mustWrite(t, g, 10, "ten")
}

// Each step makes last what it says, in the order that makes a crash harmless. The second time the mark is equal,
// but nobody knows whether the disk has it, and after a sync that failed only what is written again is synced.
func TestStepsOfAChange(t *testing.T) {
	for what, want := range map[string][]string{
		"write":  {"prepared", "raised", "synced", "applied", "synced"},
		"remove": {"raised", "synced", "applied", "synced"},
		"raise":  {"raised", "synced"},
	} {
		g, path := newGuard(t)
		mustWrite(t, g, 1, "1")
		var steps []string
		g.OnStep(func(step string) { steps = append(steps, step) })
		for range 2 {
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			require.NoError(t, os.Chtimes(side(path), time.Unix(1, 0), time.Unix(1, 0)))
			steps = nil
			require.NoError(t, act(g, what, 2))
			assert.Equal(t, want, steps, what)
			info, err := os.Stat(side(path))
			require.NoError(t, err)
			assert.NotEqual(t, time.Unix(1, 0), info.ModTime(), "the mark is not written again")
		}

		f, err := os.Open(side(path))
		require.NoError(t, err)
		require.NoError(t, f.Close())
		g.OnStep(func(step string) { assert.Fail(t, "a step without a sync", step) })
		require.ErrorIs(t, g.Sync(f, "synced"), os.ErrClosed)
	}
}

// The mark is never lower than the token of the content, the content is whole,
// and what was left over is in nobody's way.
func TestKilledAtAnyStep(t *testing.T) {
	for what, steps := range map[string][]string{"write": {"prepared", "raised", "synced", "applied",
		"never"}, "remove": {"raised", "applied"}} {
		for _, step := range steps {
			g, path := newGuard(t)
			mustWrite(t, g, 5, "5")
			child := lab.StartChild(t, "crash", path, what, "8", step)
			if step == "never" { // at any moment, in the middle of many
				require.Eventually(t, func() bool { return markOf(t, path) > 20 }, patience, time.Millisecond)
				time.Sleep(rand.N(20 * time.Millisecond))
				child.Kill()
			}
			require.NotZero(t, child.Wait(t, patience))
			mark := markOf(t, path)
			content := contentOf(t, path)
			if content != "" {
				token, err := fencing.Parse(content)
				require.NoError(t, err)
				assert.LessOrEqual(t, token, mark, "%s killed at %s", what, step)
			}
			assert.Equal(t, step == "applied" || step == "never", mark >= 8 && content != "5",
				"%s killed at %s: %q under %d", what, step, content, mark)
			guardtest.Stale(t, act(g, "write", mark-1), path, mark-1, mark)
			mustWrite(t, g, mark, "on")
			assert.Equal(t, "on", contentOf(t, path))
			assert.Len(t, list(t, filepath.Dir(path)), 2, "nothing is left behind")
		}
	}
}

func TestContextBoundsTheWait(t *testing.T) {
	g, path := newGuard(t)
	mustWrite(t, g, 1, "one")
	inside, leave, left := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		other := guardOf(t, path)
		other.OnStep(func(step string) {
			if step == "prepared" {
				close(inside)
				<-leave
			}
		})
		left <- other.WriteFile(context.Background(), 2, []byte("two"), 0o600)
	}()
	<-inside
	mine := errors.New("my own trouble")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() { done <- g.WriteFile(ctx, 3, []byte("three"), 0o600) }()
	cancel(mine)
	err := <-done
	assert.ErrorIs(t, err, mine)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, fencing.Token(1), markOf(t, path))

	close(leave)
	require.NoError(t, <-left)
	mustWrite(t, g, 3, "three")
}

func TestNamesThatCannotBeGuardedAreInvalid(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"", ".", "..", "/", "a/", "a\x00b", ".f.fence", ".f.fence-new",
		"..fence", strings.Repeat("x", 245)} {
		path := name
		if name != "" {
			path = dir + "/" + name
		}
		_, err := fileguard.New(path)
		assert.ErrorIs(t, err, locker.ErrInvalid, "%q", name)
	}
	for _, name := range []string{"f.fence", ".f", ".fence-newer", "本", "a b\n", strings.Repeat("x", 244)} {
		mustWrite(t, guardOf(t, filepath.Join(dir, name)), 1, "one")
		assert.Equal(t, "one", contentOf(t, filepath.Join(dir, name)))
	}
	_, err := fileguard.New(filepath.Join(dir, "missing", "f"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = fileguard.New(filepath.Join(dir, "f.fence", "f"))
	assert.ErrorContains(t, err, "not a directory")
	assert.ErrorIs(t, guardOf(t, filepath.Join(dir, "g")).WriteFile(t.Context(), 1, nil,
		os.ModeSetuid|0o600), locker.ErrInvalid)
}

func TestRelativePathStaysWhereItWas(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	g := guardOf(t, "f")
	t.Chdir(t.TempDir())
	mustWrite(t, g, 2, "two")
	assert.Equal(t, "two", contentOf(t, filepath.Join(dir, "f")))
	guardtest.Stale(t, g.Remove(t.Context(), 1), "f", 1, 2)
}

func TestDamagedSidecarIsNeverPermission(t *testing.T) {
	g, path := newGuard(t)
	mustWrite(t, g, 5, "five")
	good := contentOf(t, side(path))
	assert.Regexp(t, "^fencing 1: the mark of the file beside it; do not edit, do not delete\n"+
		`mark 5\nsum [0-9a-f]{8} +\n$`, good)
	assert.Len(t, good, 512)
	for what, content := range map[string]string{
		"garbage":            "4711\n",
		"zeros":              strings.Repeat("\x00", len(good)),
		"cut":                good[:len(good)-1],
		"another digit":      strings.Replace(good, "mark 5", "mark 4", 1),
		"something after it": good + "x",
		"another release":    strings.Replace(good, "fencing 1", "fencing 2", 1),
	} {
		require.NoError(t, os.WriteFile(side(path), []byte(content), 0o600))
		before := list(t, filepath.Dir(path))
		for range 2 { // the second time shows that the first left no lock
			err := act(g, "write", 1<<63)
			require.ErrorContains(t, err, side(path), what)
			assert.NotErrorIs(t, err, fencing.ErrStale)
		}
		assert.Equal(t, before, list(t, filepath.Dir(path)))
	}
}

func TestWhatIsNoFileIsRefused(t *testing.T) {
	for what, build := range map[string]func(path string) error{
		"a symbolic link":          func(path string) error { return os.Symlink("target", path) },
		"a link to nowhere":        func(path string) error { return os.Symlink("nowhere", path) },
		"a directory":              func(path string) error { return os.Mkdir(path, 0o700) },
		"a named pipe":             func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link in the sidecar's":  func(path string) error { return os.Symlink("target", side(path)) },
		"a directory in its place": func(path string) error { return os.Mkdir(side(path), 0o700) },
		"a pipe in its place":      func(path string) error { return syscall.Mkfifo(side(path), 0o600) },
	} {
		g, path := newGuard(t)
		target := filepath.Join(filepath.Dir(path), "target")
		require.NoError(t, os.WriteFile(target, []byte("as it was"), 0o600))
		require.NoError(t, build(path), what)
		assert.ErrorContains(t, act(g, "write", 1), path, what)
		assert.ErrorContains(t, act(g, "remove", 1), path, what)
		assert.Equal(t, "as it was", contentOf(t, target))
	}
	g, path := newGuard(t)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(filepath.Dir(path), link))
	mustWrite(t, g, 5, "five")
	linked := filepath.Join(link, "f")
	guardtest.Stale(t, act(guardOf(t, linked), "write", 4), linked, 4, 5)
}

func TestPermissionsAreThoseOfTheFile(t *testing.T) {
	umask := syscall.Umask(0o022)
	defer syscall.Umask(umask)
	g, path := newGuard(t)
	for _, mode := range []fs.FileMode{0o644, 0o662, 0o400} {
		if mode != 0o644 { // perm, before umask
			require.NoError(t, os.Chmod(path, mode))
		}
		require.NoError(t, g.WriteFile(t.Context(), 1, nil, 0o666))
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode())
	}
	info, err := os.Stat(side(path))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode())
}

// Those who make the sidecar at the same moment all get it.
func TestTheFirstToComeAreMany(t *testing.T) {
	dir := t.TempDir()
	for i := range 100 {
		g := guardOf(t, filepath.Join(dir, strconv.Itoa(i)))
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { assert.NoError(t, g.Raise(t.Context(), 1)) })
		}
		all.Wait()
	}
}

const nobody = 65534

func TestOwnerAndGroupAreThoseOfTheFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be several users")
	}
	// Not t.TempDir(), whose parents are closed to others.
	dir, err := os.MkdirTemp("", "fileguard")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	path := filepath.Join(dir, "f")
	require.NoError(t, os.Chown(dir, nobody, nobody))
	as := func(what, token string) string {
		return lab.StartChild(t, "user", path, what, token).Expect(t, "done", patience)
	}
	assert.Equal(t, "<nil>", as("write", "1"))
	mustWrite(t, guardOf(t, path), 2, "2")
	assert.Equal(t, "<nil>", as("write", "3"), "root has kept owner and group")

	for _, of := range [][2]int{{nobody, 0}, {0, nobody}} {
		require.NoError(t, os.Chown(path, of[0], of[1]))
		mustWrite(t, guardOf(t, path), 3, "3")
		info, err := os.Stat(path)
		require.NoError(t, err)
		st := info.Sys().(*syscall.Stat_t)
		assert.Equal(t, of, [2]int{int(st.Uid), int(st.Gid)})
	}
	require.NoError(t, os.Chown(path, 0, 0))
	assert.Contains(t, as("write", "4"), "cannot get the owner 0 and the group 0")
	assert.Equal(t, "3", contentOf(t, path))
	assert.Equal(t, fencing.Token(3), markOf(t, path))
	require.NoError(t, os.Chown(side(path), 0, 0))
	assert.Contains(t, as("raise", "4"), "permission denied")
}

func TestSuite(t *testing.T) {
	dir := t.TempDir()
	guardtest.Run(t, func(t *testing.T) guardtest.Store {
		of := func(r string) *fileguard.Guard {
			g, err := fileguard.New(filepath.Join(dir, r))
			if err != nil {
				panic(err)
			}
			return g
		}
		// A refusal names the file.
		named := func(err error, r string) error {
			if stale, ok := err.(*fencing.StaleError); ok { //nolint:errorlint // nothing is wrapped around it
				stale.Resource = r
			}
			return err
		}
		return guardtest.Store{
			Write: func(ctx context.Context, r string, token fencing.Token, value string) error {
				return named(of(r).WriteFile(ctx, token, []byte(value), 0o600), r)
			},
			Raise: func(ctx context.Context, r string, token fencing.Token) error {
				return named(of(r).Raise(ctx, token), r)
			},
			Read: func(_ context.Context, r string) (string, error) {
				data, err := os.ReadFile(filepath.Join(dir, r))
				if errors.Is(err, fs.ErrNotExist) {
					err = nil
				}
				return string(data), err
			},
			Mark:  func(_ context.Context, r string) (fencing.Token, error) { return markOf(t, filepath.Join(dir, r)), nil },
			State: func() any { return list(t, dir) }, // not a byte, an inode or a time
		}
	})
}
