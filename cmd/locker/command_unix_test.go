//go:build unix

package main_test

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golockers/locker/file"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestWithoutConfiguration(t *testing.T) {
	dir, err := file.DefaultDir()
	require.NoError(t, err)
	name := "locker-test-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	defer os.Remove(filepath.Join(dir, name+".lock"))
	holder := start(t, nil, locked(nil, name, "listen")...)
	holder.expect("group")
	for _, flags := range []string{"--try -q", "--wait 0s -q", "--min-hold 1s --wait 1ms -q"} {
		r := do(t, nil, append(strings.Fields("run "+flags), name, "--", "true")...)
		assert.Equal(t, 75, r.status, flags)
		assert.Regexp(t, `\Alocker: this locks on this host only: [^\n]*\n\z`, r.stderr, flags)
	}
	// The same lock from a cron job or a service, whose environment is another.
	assert.Equal(t, 75, do(t, []with{func(c *exec.Cmd) { c.Env = []string{"PATH=" + os.Getenv("PATH")} }},
		"run", "--try", name, "--", "true").status)
	holder.end()
	assert.Equal(t, 0, do(t, nil, "run", "--try", name, "--", "true").status)
}

func TestEnvironmentOfTheCommand(t *testing.T) {
	backend := fileBackend(t)
	outer := []with{backend, withEnv("LOCKER_NAME=outer"), withEnv("LOCKER_TOKEN=12"),
		withEnv("OTHER=kept as it is")}
	show := []string{"--", "sh", "-c", `echo "$LOCKER_NAME, $OTHER, $(env | grep -c ^LOCKER_TOKEN=) $LOCKER_TOKEN"`}
	last := 12
	for range 2 {
		r := do(t, outer, append([]string{"run", "a name=1"}, show...)...)
		rest, ok := strings.CutPrefix(r.stdout, "a name=1, kept as it is, 1 ")
		require.True(t, ok, r)
		token := number(t, rest)
		assert.Greater(t, token, last, "each holder's token is greater than the one before")
		last = token
	}

	// A locker inside of another finds its backend, and has a name of its own.
	play(t, []with{backend}, prints("^b$", "run a -- "+binary+" run b -- sh -c", "echo $LOCKER_NAME"))
}

func TestSlots(t *testing.T) {
	backend := []with{fileBackend(t), withEnv("LOCKER_SLOT=9")}
	play(t, backend, prints("^none$", "run a -- sh -c", "echo ${LOCKER_SLOT-none}")) // an outer one's is not the command's
	tell := []string{"sh", "-c", `echo "$LOCKER_NAME is slot $LOCKER_SLOT"; exec sleep 1000`}
	run := func(args ...string) *process {
		return start(t, backend, slices.Concat([]string{"run", "--slots", "2"}, args, tell)...)
	}
	first, second := run("a", "--"), run("--try", "a", "--")
	said := []string{first.expect("a/"), second.expect("a/")}
	slices.Sort(said)
	assert.Equal(t, []string{"0 is slot 0", "1 is slot 1"}, said)
	third := run("a", "--")
	third.expectSaid("waiting for")
	play(t, backend,
		fails(75, `all 2 slots of "a" are held by sh@`, "run --slots 2 --try a -- true"),
		prints(`\A"a": slots held: 2, waiting: \d+ \(sh@\S+\)\n"a/0": held by sh@.*\n"a/1": held by sh@.*\z`, "inspect a"),
		prints(`"name":"a","held":false,.*"slots":\[\{"name":"a/0","held":true,.*\{"name":"a/1","held":true`, "inspect --json a"),
		fails(64, `"a" has slots: name the one to break: "a/0": held by sh@`, "break --yes a"))
	assert.Equal(t, 0, do(t, backend, "run", "--slots", "3", "--try", "a", "--", "true").status)
	first.signal(syscall.SIGTERM)
	third.expect("a/")
	for _, p := range []*process{second, third} {
		p.signal(syscall.SIGTERM)
		p.wait()
	}
}

func TestStreamsAndDescriptorsAreTheCallers(t *testing.T) {
	// Such as the pipes of a make with jobs: not the lock in their place.
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	ours := func(c *exec.Cmd) { c.Stdin, c.ExtraFiles = strings.NewReader("to be copied\n"), []*os.File{w} }
	res := do(t, []with{fileBackend(t), ours}, "run", "a", "--", "sh", "-c", "cat; echo aside >&2; echo third >&3")
	_ = w.Close()
	assert.Equal(t, result{0, "to be copied", "aside\n"}, res)
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "third\n", string(got))
}

func TestSignalsArePassedOnToTheGroup(t *testing.T) {
	p := start(t, []with{fileBackend(t)}, locked(nil, "a", "listen", "stubborn")...)
	group := p.expect("group")
	assert.NotEqual(t, strconv.Itoa(syscall.Getpgrp()), group)
	for _, sig := range []syscall.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTERM,
	} {
		p.signal(sig)
		assert.Equal(t, unix.SignalName(sig), p.expect("got"))
	}
	assert.True(t, p.running(), "a command that goes on keeps its lock")
	p.signal(syscall.SIGHUP)
	assert.Equal(t, "SIGHUP", p.expect("got"))
	assert.Equal(t, 3, p.wait())
	assert.Empty(t, p.said())
	assert.ErrorIs(t, syscall.Kill(-number(t, group), 0), syscall.ESRCH, "the guard stays behind")
}

func TestSignalReachesWhatTheCommandHasStarted(t *testing.T) {
	p := start(t, []with{fileBackend(t)}, locked(nil, "a", "family")...)
	child := number(t, p.expect("child"))
	require.False(t, gone(child))
	p.signal(syscall.SIGHUP) // ends both: family does not listen to it
	assert.Equal(t, 128+1, p.wait())
	require.Eventually(t, func() bool { return gone(child) }, patience, time.Millisecond)
}

func TestIgnoredHangupStaysIgnored(t *testing.T) {
	// As under nohup.
	args := append([]string{"-c", `trap "" HUP; exec "$0" "$@"`, binary}, locked(nil, "a", "listen")...)
	p := startCommand(t, []with{fileBackend(t)}, "sh", args...)
	p.expect("group")
	p.signal(syscall.SIGHUP)
	p.signal(syscall.SIGUSR1)
	assert.Equal(t, "SIGUSR1", p.expect("got"), "HUP must reach neither")
	p.end()
}

func TestSignalEndsTheWaitAndLeavesNothing(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			backend := fileBackend(t)
			holder := holding(t, []with{backend})
			waiter := start(t, []with{backend}, "run", "a", "--", "echo", "ran")
			awaitWaiting(t, waiter)
			waiter.signal(syscall.SIGUSR1) // for a command that is not there yet
			waiter.signal(sig)
			began := time.Now()
			assert.Equal(t, 128+int(sig), waiter.shellStatus())
			assert.Less(t, time.Since(began), patience/4)
			assert.Empty(t, waiter.stdout())
			assert.Empty(t, waiter.complaints())
			holder.end()
			assert.Equal(t, 0, do(t, []with{backend}, "run", "--try", "a", "--", "true").status)
		})
	}
}

func TestOutliveLeavesTheFileLockToItsCommand(t *testing.T) {
	t.Parallel()
	script := []string{"sh", "-c", `exec 3>&1 4>&1 5>&1 6>&1 7>&1 8>&1 9>&1; exec "$@"`, "sh"}
	for what, prefix := range map[string][]string{"program": nil,
		"script with descriptors of its own": script, "one that closes what it inherits": command("shut")} {
		t.Run(what, func(t *testing.T) {
			backend := fileBackend(t)
			args := slices.Concat([]string{"run", "--outlive", "a", "--"}, prefix, command("leave", "later"))
			p := start(t, []with{backend}, args...)
			left, pid := number(t, p.expect("child")), number(t, p.expect("pid"))
			t.Cleanup(func() { _ = syscall.Kill(left, syscall.SIGKILL) })
			p.signal(syscall.SIGKILL)
			assert.Equal(t, -1, p.wait())
			require.False(t, gone(pid), "the command goes on, as under flock(1)")
			for range 3 {
				assert.Equal(t, 75, do(t, []with{backend}, "run", "--try", "a", "--", "true").status,
					"and so does the lock")
			}
			require.NoError(t, syscall.Kill(pid, syscall.SIGUSR1))
			require.Eventually(t, func() bool { return gone(pid) }, patience, time.Millisecond)
			next := start(t, []with{backend}, "run", "a", "--", "echo", "ran")
			if runtime.GOOS == "linux" { // until the last process of the command has ended
				// a container's /proc/locks hides a lock, and who waits for it, when its locker is dead
				next.expectSaid("waiting for")
			}
			require.NoError(t, syscall.Kill(left, syscall.SIGKILL))
			assert.Equal(t, 0, next.wait())
			next.expect("ran")
		})
	}
}

// What a command leaves that ends by itself goes on, also if locker is stopped or killed before it hears of that end.
func TestLockEndsWithTheCommandNotWithWhatItLeaves(t *testing.T) {
	t.Parallel()
	file := func(t *testing.T) with { return fileBackend(t) }
	redis := func(t *testing.T) with { return startService(t).direct() }
	for what, c := range map[string]struct {
		backend func(*testing.T) with
		sig     syscall.Signal
		status  int
	}{
		"ends": {file, 0, 0}, "stopped": {redis, syscall.SIGSTOP, 74}, "killed": {redis, syscall.SIGKILL, -1},
		"killed, with its file": {file, syscall.SIGKILL, -1},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			backend := []with{c.backend(t)}
			p := start(t, backend, locked([]string{"--ttl", "4s"}, "a", "leave", "later")...)
			left, pid := number(t, p.expect("child")), number(t, p.expect("pid"))
			t.Cleanup(func() { _ = syscall.Kill(left, syscall.SIGKILL) })
			if c.sig != 0 {
				p.signal(syscall.SIGSTOP)
			}
			require.NoError(t, syscall.Kill(pid, syscall.SIGUSR1))
			require.Eventually(t, func() bool { return syscall.Kill(pid, 0) != nil }, patience, time.Millisecond,
				"its guard has waited for it")
			if c.sig == syscall.SIGKILL {
				p.signal(c.sig)
			}
			assert.Equal(t, 0, do(t, backend, "run", "a", "--", "true").status)
			p.signal(syscall.SIGCONT)
			assert.Equal(t, c.status, p.wait())
			assert.Never(t, func() bool { return gone(left) }, 300*time.Millisecond, 5*time.Millisecond)
			assert.Equal(t, c.status == 74, strings.Contains(p.said(), "the command had ended by then"), p.said())
		})
	}
}

func TestMaxHoldEndsTheCommand(t *testing.T) {
	t.Parallel()
	backend := fileBackend(t)
	began := time.Now()
	limit := []string{"--max-hold", "6s"} // time for the command to start, and a second to end in
	p := start(t, []with{backend}, locked(limit, "a", "listen", "stubborn")...)
	good := start(t, []with{backend}, locked(limit, "b", "listen")...)
	ofURL := start(t, urls("file://"+t.TempDir()+"?max_hold=6s"), locked(nil, "a", "listen")...)
	child := number(t, p.expect("pid"))
	p.expect("got SIGTERM")
	assert.Equal(t, 74, p.wait())
	assert.GreaterOrEqual(t, time.Since(began), 5*time.Second)
	assert.True(t, gone(child))
	assert.Contains(t, p.said(), "--max-hold is reached: sent SIGTERM")
	assert.Regexp(t, `"a": (its guard did not end the command in time: )?sent SIGKILL`, p.said())
	assert.Equal(t, 0, do(t, []with{backend}, "run", "--try", "a", "--", "true").status)

	assert.Equal(t, 74, ofURL.wait())
	assert.Contains(t, ofURL.said(), "max_hold of the backend's URL is reached: sent SIGTERM")
	good.expect("got SIGTERM")
	assert.Equal(t, 74, good.wait(), "also if the command then ends with status 0")
	assert.NotContains(t, good.said(), "sent SIGKILL")
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}

func TestNameThatBeginsWithADash(t *testing.T) {
	show := []string{"--", "sh", "-c", `echo "$LOCKER_NAME $*"`, "sh"}
	play(t, []with{fileBackend(t)},
		prints(`^-foo $`, "run -- -foo", show...),
		prints(`^--wait -x$`, "run --try -- --wait", append(show, "-x")...),
		prints(`^-- $`, "run -- --", show...),
		prints(`^a $`, "run -- a", show...),
		prints(`^a -- b$`, "run a", append(show, "--", "b")...),
		prints(`^-a -- b$`, "run -- -a", append(show, "--", "b")...))
}

// Also one that takes connections, and says nothing: --wait bounds how long that takes, and --try does, by 10 s.
func TestServiceThatDoesNotAnswerIsNotWaitedForLong(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	for scheme, wait := range map[string]time.Duration{ // less than they take without a --wait
		"redis": 2800 * time.Millisecond, "etcd": 4500 * time.Millisecond, "zookeeper": 4500 * time.Millisecond,
	} {
		for flag, limit := range map[string]time.Duration{"--wait=500ms": wait, "--try": 13 * time.Second} {
			t.Run(scheme+flag, func(t *testing.T) {
				t.Parallel()
				began := time.Now()
				r := do(t, nil, "run", "-b", scheme+"://"+l.Addr().String(), flag, "a", "--", "echo", "ran")
				assert.Less(t, time.Since(began), limit)
				assert.Equal(t, 69, r.status, r.stderr)
				assert.Contains(t, r.stderr, "the lock service is unavailable")
				assert.Regexp(t, `\A(locker: [^\n]*\n)+\z`, r.stderr)
				assert.Empty(t, r.stdout)
			})
		}
	}
}

func TestUserWithoutAHomeIsToldWhatToDo(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	require.NoError(t, os.Chmod(filepath.Dir(binary), 0o755))
	nobody := func(c *exec.Cmd) {
		c.Dir = "/"
		c.Env = []string{"PATH=" + os.Getenv("PATH")}
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 64321, Gid: 64321}}
	}
	r := do(t, []with{nobody}, "run", "a", "--", "true")
	assert.Equal(t, 69, r.status)
	assert.Contains(t, r.stderr, "--backend file:///DIR")
}
