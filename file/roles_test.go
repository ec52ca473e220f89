//go:build linux || darwin

package file_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/file"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// roles are what this test binary does as a child. Their first argument is the
// lock directory.
var roles = lab.Roles{
	"hold":    hold,
	"heir":    heir,
	"limited": limited,
	"nobody":  nobody,
	"share":   share,
}

const patience = 30 * time.Second

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func clientIn(dir string) *locker.Client { return locktest.Must(locker.New(must(file.New(dir)), nil)) }

// hold locks a name, says its token, and unlocks when it is told to.
func hold(p *lab.Parent) {
	lease := must(clientIn(p.Args[0]).Lock(context.Background(), p.Args[1]))
	token, _ := lease.Token()
	p.Say("holding %d", token)
	for {
		p.Hear()
		p.Say("unlocked %v", lease.Unlock(context.Background()))
	}
}

// heir locks a name and starts a process of its own, which is given the locked
// file if the last argument says so.
func heir(p *lab.Parent) {
	lease := must(clientIn(p.Args[0]).Lock(context.Background(), p.Args[1]))
	cmd := exec.CommandContext(context.Background(), "sleep", "100")
	if p.Args[2] == "given" {
		var f *os.File
		if !lease.As(&f) {
			panic("no file")
		}
		cmd.ExtraFiles = []*os.File{f}
	}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	p.Say("child %d", cmd.Process.Pid)
	p.Hear()
	p.Say("unlocked %v", lease.Unlock(context.Background()))
	p.Hear()
}

// limited locks a name while it may use no more than so much of a resource.
func limited(p *lab.Parent) {
	b := must(file.New(p.Args[0]))
	signal.Ignore(syscall.SIGXFSZ)
	resource := map[string]int{"file size": syscall.RLIMIT_FSIZE,
		"open files": syscall.RLIMIT_NOFILE}[p.Args[2]]
	limit := must(strconv.ParseUint(p.Args[3], 10, 63))
	if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		panic(err)
	}
	_, err := locktest.Ask(context.Background(), b, driver.Request{Name: p.Args[1],
		Label: "a label that makes the record longer"})
	p.Say("error %v; unavailable %t", err, errors.Is(err, driver.ErrUnavailable))
}

func dropRights() {
	if os.Geteuid() != 0 {
		return
	}
	if err := errors.Join(syscall.Setgroups([]int{}), syscall.Setgid(65534),
		syscall.Setuid(65534)); err != nil {
		panic(err)
	}
}

// nobody gives up root's rights, if it has them, and then does what it is told.
func nobody(p *lab.Parent) {
	dropRights()
	b, err := file.New(p.Args[0])
	if err == nil {
		_, err = locktest.Must(locker.New(b, nil)).TryLock(context.Background(), p.Args[1])
	}
	p.Say("error %v; held %t; unavailable %t", err, errors.Is(err, driver.ErrHeld), errors.Is(err,
		driver.ErrUnavailable))
}

// request asks for the lock "n", and waiting waits for it.
func request(shared bool, minHold time.Duration) driver.Request {
	return driver.Request{Name: "n", Owner: "o", TTL: time.Second, MinHold: minHold, Shared: shared,
		Lost: func() {}, Queued: func() {}}
}

func waiting(shared bool) driver.Request {
	req := request(shared, 0)
	req.Wait = true
	return req
}

// dies ends a lease or a hold as the end of its process would.
func dies(t *testing.T, hold any) {
	t.Helper()
	var f *os.File
	require.True(t, hold.(driver.Aser).As(&f))
	require.NoError(t, f.Close())
}

func newBackend(t *testing.T, dir string) *file.Backend {
	t.Helper()
	b, err := file.New(dir)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.Close()) })
	return b
}

// newClient returns a Client with a Backend of its own, as another program
// would have; both are closed with the test.
func newClient(t *testing.T, dir string, opts *locker.Options) *locker.Client {
	t.Helper()
	return locktest.Client(t, newBackend(t, dir), opts)
}

var newClientOf, mustLock = locktest.Client, locktest.Lock

func token(t *testing.T, lease *locker.Lease) uint64 {
	t.Helper()
	n, ok := lease.Token()
	require.True(t, ok)
	return n
}

// lockFile returns the path of the only lock file in dir.
func lockFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(dir + "/*.lock")
	require.NoError(t, err)
	require.Len(t, files, 1)
	return files[0]
}

// blocked returns how many goroutines of this process are there to wait in flock.
func blocked() int {
	return strings.Count(stacks(), "created by github.com/golockers/locker/file.(*Backend).wait")
}

func stacks() string {
	buf := make([]byte, 4<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

func waitUntilBlocked(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return blocked() == n }, patience, time.Millisecond,
		"goroutines in flock: want %d", n)
}
