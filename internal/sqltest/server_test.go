//go:build unix

package sqltest_test

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

// account is who servers run as: databases refuse to run as root.
type account struct{ uid, gid int }

func serverAccount(t testing.TB) account {
	if os.Getuid() != 0 {
		return account{os.Getuid(), os.Getgid()}
	}
	u, err := user.Lookup("nobody")
	require.NoError(t, err)
	uid, err := strconv.Atoi(u.Uid)
	require.NoError(t, err)
	gid, err := strconv.Atoi(u.Gid)
	require.NoError(t, err)
	return account{uid, gid}
}

// become is the role of a child that turns into a server: package lab
// then has a Process of it, which ends with the test.
func become(p *lab.Parent) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "become a server:", err)
			os.Exit(1)
		}
	}
	uid, err := strconv.Atoi(p.Args[0])
	fail(err)
	gid, err := strconv.Atoi(p.Args[1])
	fail(err)
	runtime.LockOSThread()
	if os.Getuid() == 0 {
		fail(syscall.Setgroups([]int{gid}))
		fail(syscall.Setgid(gid))
		fail(syscall.Setuid(uid))
	}
	fail(endWithParent()) // changing the account has undone it
	fail(os.Chdir(p.Args[2]))
	command := p.Args[3:]
	fail(syscall.Exec(command[0], command, append(os.Environ(), "LC_ALL=C", "HOME="+p.Args[2])))
}

// startProcess starts a command in a directory, as the account of servers.
func startProcess(t testing.TB, dir string, command ...string) *lab.Child {
	t.Helper()
	a := serverAccount(t)
	return lab.StartChild(t, "become", append([]string{strconv.Itoa(a.uid), strconv.Itoa(a.gid), dir},
		command...)...)
}

// run runs a command to its end.
func run(t testing.TB, dir string, command ...string) {
	t.Helper()
	c := startProcess(t, dir, command...)
	if status := c.Wait(t, 2*time.Minute); status != 0 {
		t.Fatalf("%s ended with status %d:\n%s", command[0], status, c.Log())
	}
}

// serverDir makes a directory for a server: not t.TempDir, which is closed to
// other accounts, nor a long name, for the sake of sockets.
func serverDir(t testing.TB) string {
	t.Helper()
	dir, err := newDir(t)
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func newDir(t testing.TB) (string, error) {
	dir, err := os.MkdirTemp("", "locker-sql-")
	if err == nil && os.Getuid() == 0 {
		a := serverAccount(t)
		err = os.Chown(dir, a.uid, a.gid)
	}
	return dir, err
}

// templates are data directories as they are when a server was never started,
// made once for all tests of the binary: making one takes seconds.
var templates struct {
	sync.Mutex
	dirs map[string]string
}

// fromTemplate returns a fresh directory with a copy of what prepare made.
func fromTemplate(t testing.TB, name string, prepare func(dir string)) string {
	t.Helper()
	templates.Lock()
	defer templates.Unlock()
	from := templates.dirs[name]
	if from == "" {
		var err error
		from, err = newDir(t)
		require.NoError(t, err)
		prepare(from)
		if templates.dirs == nil {
			templates.dirs = map[string]string{}
		}
		templates.dirs[name] = from
	}
	dir := serverDir(t)
	require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
	a := serverAccount(t)
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o600) // what a server demands
		if d.IsDir() {
			mode = 0o700
		}
		if err = os.Chmod(path, mode); err == nil && os.Getuid() == 0 {
			err = os.Chown(path, a.uid, a.gid)
		}
		return err
	}))
	return dir
}

func removeTemplates() {
	templates.Lock()
	defer templates.Unlock()
	for _, dir := range templates.dirs {
		_ = os.RemoveAll(dir)
	}
}

// freePort returns a port that nobody listens on, from below the range of
// outgoing connections. Somebody may take it before it is used: serve tries again.
func freePort() int {
	for {
		port := 23000 + rand.IntN(9000)
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address(port))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// serve starts a server until one is ready, each time on another port.
func serve(t testing.TB, start func(port int) *lab.Child, ready func(port int) error) (*lab.Child, int) {
	t.Helper()
	for range 5 {
		port := freePort()
		c := start(port)
		var err error
		deadline := time.Now().Add(30 * time.Second)
		for ; c.Running() && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if err = ready(port); err == nil {
				return c, port
			}
		}
		c.Kill()
		t.Logf("a server did not get ready on port %d: %v:\n%s", port, err, c.Log())
	}
	t.Fatal("no server got ready")
	return nil, 0
}
