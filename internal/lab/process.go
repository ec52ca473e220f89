package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Machines that run tests may be forty times slower than others, and stand still now and then. What has to happen
// is therefore waited for, and given up late: a server that is well is up in a fraction of it.
const (
	patience  = 2 * time.Minute  // for an answer, or the end of a process
	probe     = 10 * time.Second // for one look at a server, which is repeated until all is as it should be
	pollEvery = 5 * time.Millisecond
)

// Process is a server or a child that belongs to a test. It is killed when the test ends, or, on Linux, when
// the test binary dies. If the test failed, the end of what it wrote is logged.
//
// All methods may be called from any goroutine, except those that take a TB.
type Process struct {
	config
	t       TB
	name    string
	log     *os.File
	ports   []int // the first is for clients
	clock   *clock
	command func() (*exec.Cmd, error)  // called once per start
	answers func() error               // returns nil once it serves; nil for what is no server
	tells   func() (time.Time, error)  // what its clock says
	quit    func(p *os.Process) error  // asks it to end in good order; nil: by SIGTERM, and not when the test ends
	every   func(do func(*os.Process)) // does something to the processes that it has started in turn; nil: it has none

	mu  sync.Mutex
	run *run // the latest; nil before the first
}

// run is one life of a process.
type run struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the process has ended and was reaped
}

// newProcess prepares a process with a directory of its own, to which it writes its log, and so many ports.
func newProcess(t TB, name string, c config, ports int) *Process {
	t.Helper()
	p := &Process{config: c, t: t, name: name}
	dir := newDir(t, "")
	p.dir = cmp.Or(p.dir, dir)
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err == nil {
		err = giveAway(p.dir)
	}
	if err != nil {
		t.Fatalf("lab: prepare %s: %v", name, err)
	}
	p.log = log
	for len(p.ports) < ports {
		p.ports = append(p.ports, freePort(t))
	}
	if c.clocked {
		p.clock = newClock(t, p.dir)
	}
	t.Cleanup(func() {
		if p.quit != nil && p.Running() {
			p.Resume()
			p.Stop()
		}
		p.Kill()
		if t.Failed() {
			t.Logf("the last lines of %s:\n%s", name, p.Log())
		}
		_ = log.Close()
	})
	return p
}

// newDir makes a directory that goes when the test ends, in another one or, for "", in that for temporary files: not
// t.TempDir, which is closed to other accounts, and whose path is too long for a unix socket.
func newDir(t TB, in string) string {
	t.Helper()
	dir, err := os.MkdirTemp(in, "locker-lab-")
	if err != nil {
		t.Fatalf("lab: %v", err)
	}
	t.Cleanup(func() { // what a server has started may write for a moment longer than it lives
		for deadline := time.Now().Add(patience); os.RemoveAll(dir) != nil && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
	})
	return dir
}

// StartProcess starts a program that belongs to a test. It is killed when the test ends. Its output goes to
// its log unless the command says otherwise.
func StartProcess(t TB, name string, command func() (*exec.Cmd, error)) *Process {
	t.Helper()
	p := newProcess(t, name, config{}, 0)
	p.command = command
	if err := p.start(); err != nil {
		t.Fatalf("%v", err)
	}
	return p
}

// program is a command that runs in the directory of the process, by its clock.
func (p *Process) program(binary string, args ...string) *exec.Cmd {
	// Not the test's context: it ends before the clean-up, which may still need the server.
	cmd := exec.CommandContext(context.Background(), binary, args...)
	// Two MariaDBs that are prepared in one TMPDIR remove each other's files there.
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), "LC_ALL=C", "HOME="+p.dir, "TMPDIR="+p.dir)
	cmd.Env = append(cmd.Env, p.clock.environment()...)
	return cmd
}

// start starts the process, which must not be running.
func (p *Process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd, err := p.command()
	if err != nil {
		return err
	}
	// A file, not a pipe: the process must never block on what it writes, even while nobody reads.
	if cmd.Stdout == nil {
		cmd.Stdout = p.log
	}
	if cmd.Stderr == nil {
		cmd.Stderr = p.log
	}
	endWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("lab: start %s: %w", p.name, err)
	}
	r := &run{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // ProcessState says how it ended
		close(r.done)
	}()
	p.run = r
	return nil
}

// current returns the latest run, and whether it has not ended yet.
func (p *Process) current() (*run, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return nil, false
	}
	select {
	case <-p.run.done:
		return p.run, false
	default:
		return p.run, true
	}
}

// Addr returns the host:port that clients connect to. It stays the same over restarts.
func (p *Process) Addr() string { return loopback(p.ports[0]) }

// Port returns the port of Addr.
func (p *Process) Port() int { return p.ports[0] }

// Dir returns the directory of what the server stores, which is removed when the test ends.
func (p *Process) Dir() string { return p.dir }

// Pid returns the process ID of the latest start, running or not; 0 before the first.
func (p *Process) Pid() int {
	r, _ := p.current()
	if r == nil {
		return 0
	}
	return r.cmd.Process.Pid
}

// Running reports whether the process has been started and has not ended; a paused one is running.
func (p *Process) Running() bool {
	_, running := p.current()
	return running
}

// all calls do for the process and for those that it has started in turn.
func (p *Process) all(r *run, do func(*os.Process)) {
	do(r.cmd.Process)
	if p.every != nil {
		p.every(do)
	}
}

// Pause stops the process where it stands (SIGSTOP), with those that it has started to serve its clients, and
// returns once it does stand still. Its connections stay, and the kernel goes on accepting for it. The test fails
// where the system cannot do that (Windows): call [NeedPause] first.
func (p *Process) Pause() {
	p.t.Helper()
	r, running := p.current()
	if !running {
		p.t.Errorf("lab: cannot pause %s: it is not running", p.name)
		return
	}
	if err := suspend(r.cmd.Process); err != nil {
		p.t.Errorf("lab: cannot pause %s: %v", p.name, err)
		return
	}
	if err := poll(func() error {
		if !suspended(r.cmd.Process.Pid) {
			return errors.New("it was told to stand still, and does not")
		}
		return nil
	}, p); err != nil {
		p.t.Errorf("%v", err)
	}
	p.all(r, func(o *os.Process) { _ = suspend(o) })
}

// Resume lets a paused process go on (SIGCONT). It does nothing to one that is not paused.
func (p *Process) Resume() {
	p.t.Helper()
	r, running := p.current()
	if !running {
		p.t.Errorf("lab: cannot resume %s: it is not running", p.name)
		return
	}
	p.all(r, func(o *os.Process) {
		if err := resume(o); err != nil && o == r.cmd.Process {
			p.t.Errorf("lab: cannot resume %s: %v", p.name, err)
		}
	})
}

// Kill ends the process at once (SIGKILL), paused or not, and returns when it is gone. It does nothing
// to one that has ended.
func (p *Process) Kill() {
	r, running := p.current()
	if !running {
		return
	}
	// An error means that it has ended by itself.
	_ = r.cmd.Process.Kill()
	<-r.done
}

// Stop asks the process to end in good order (SIGTERM; a database is not to wait for its clients: SIGINT), and
// returns when it is gone. One that does not comply within two minutes is killed, and the test fails. It does nothing
// to one that has ended.
func (p *Process) Stop() {
	p.t.Helper()
	r, running := p.current()
	if !running {
		return
	}
	send := terminate
	if p.quit != nil {
		send = p.quit
	}
	if err := send(r.cmd.Process); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("lab: cannot stop %s: %v", p.name, err)
	}
	select {
	case <-r.done:
	case <-time.After(patience):
		p.t.Errorf("lab: %s did not end within %v of being asked to, and is killed", p.name, patience)
		p.Kill()
	}
}

// Log returns the last 16 KiB of what the process wrote, over all its starts.
func (p *Process) Log() string { return p.logFrom(0) }

// logSize returns where the log ends now, to look only at what comes after with logFrom.
func (p *Process) logSize() int64 {
	info, err := p.log.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// logFrom is Log without what stands before an offset.
func (p *Process) logFrom(from int64) string {
	const most = 16 << 10
	from = max(from, p.logSize()-most)
	text := make([]byte, max(0, p.logSize()-from))
	n, _ := p.log.ReadAt(text, from)
	return string(text[:n])
}

// lastWords are the last lines of the log.
func (p *Process) lastWords() string {
	lines := strings.Split(strings.TrimSpace(p.Log()), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// NeedPause skips the test where processes cannot be paused.
func NeedPause(t TB) {
	t.Helper()
	if !canSuspend {
		t.Skip("lab: this system cannot pause a process")
	}
}
