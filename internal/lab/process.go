package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// readyTimeout is how long a server may say nothing before it is ready. It is long because machines that run
// tests are busy; a server is up in a fraction of it. While it still writes to its log, it has readyTimes as
// long altogether.
var readyTimeout = 90 * time.Second

const (
	readyTimes  = 5
	stopTimeout = 10 * time.Second
	pollEvery   = 5 * time.Millisecond
)

// Process is a server or a child that belongs to a test. It is killed when the test ends, or when the
// test binary dies, whichever is first. If the test failed, the end of what it wrote is logged.
//
// All methods may be called from any goroutine.
type Process struct {
	t       TB
	name    string
	command func() (*exec.Cmd, error) // called once per start
	answers func() error              // returns nil once it serves; nil for what is no server
	log     *os.File

	mu  sync.Mutex
	run *run // the latest; nil before the first
}

// run is one life of a process.
type run struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the process has ended and was reaped
}

// newProcess prepares a process that writes its log into dir. The command's output goes there unless
// the command says otherwise.
func newProcess(t TB, name, dir string, command func() (*exec.Cmd, error)) *Process {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatalf("lab: log of %s: %v", name, err)
	}
	p := &Process{t: t, name: name, command: command, log: log}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("the last lines of %s:\n%s", name, p.Log())
		}
		_ = log.Close()
	})
	return p
}

// StartProcess starts a program that belongs to a test. It is killed when the test ends. Its output goes to
// its log unless the command says otherwise.
func StartProcess(t TB, name string, command func() (*exec.Cmd, error)) *Process {
	t.Helper()
	p := newProcess(t, name, t.TempDir(), command)
	if err := p.start(); err != nil {
		t.Fatalf("%v", err)
	}
	return p
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
	unguard, err := guardOrphan(cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("lab: guard %s: %w", p.name, err)
	}
	r := &run{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // ProcessState says how it ended
		unguard()
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

// serve starts those servers that do not run, all at once, since one may need the others to get ready, and
// returns when all answer. If it fails, none of them runs. The error is errPortTaken where one could not
// bind.
func serve(servers ...*Process) error {
	from := make([]int64, len(servers))
	var err error
	for i, p := range servers {
		if from[i] = p.logSize(); err == nil && !p.Running() {
			err = p.start()
		}
	}
	for i, p := range servers {
		if err != nil {
			break
		}
		if err = p.ready(p.answers); errors.Is(err, errEnded) && inUse(tail(p.log, from[i])) {
			err = fmt.Errorf("lab: %s: %w", p.name, errPortTaken)
		}
	}
	if err != nil {
		for _, p := range servers {
			p.Kill()
		}
	}
	return err
}

// inUse reports whether a server that has ended says that it found its port taken, or, of a database, that
// processes of its earlier life are not gone yet.
func inUse(log string) bool {
	log = strings.ToLower(log)
	return strings.Contains(log, "address already in use") ||
		strings.Contains(log, "shared memory block") || strings.Contains(log, "lock file")
}

var errPortTaken = errors.New("its port was taken by somebody else")

// onFreePorts calls start, which takes new ports each time, until nobody else was there first.
func onFreePorts(t TB, start func() error) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		err := start()
		if err == nil {
			return
		}
		if !errors.Is(err, errPortTaken) || attempt == portAttempts {
			t.Fatalf("%v", err)
		}
	}
}

// Restart starts the server again on the same port, with the same configuration and data, and returns once it
// answers; a member of several needs a majority of them for that. One that still runs is killed first
// (SIGKILL).
func (p *Process) Restart(t TB) {
	t.Helper()
	p.Kill()
	// Somebody else may have got the port while it was free, and may give it back.
	for deadline := time.Now().Add(readyTimeout); ; time.Sleep(20 * time.Millisecond) {
		err := serve(p)
		if err == nil {
			return
		}
		if !errors.Is(err, errPortTaken) || time.Now().After(deadline) {
			t.Fatalf("%v", err)
		}
	}
}

// ready polls check until it returns nil. It gives up when the process has ended or time is up.
func (p *Process) ready(check func() error) error {
	r, _ := p.current()
	err := poll(check, r.done, p)
	switch {
	case errors.Is(err, errEnded):
		log := strings.Split(strings.TrimSpace(p.Log()), "\n")
		return fmt.Errorf("lab: %s %w instead of getting ready (%v): %s",
			p.name, errEnded, r.cmd.ProcessState, log[len(log)-1])
	case err != nil:
		return fmt.Errorf("lab: %s is not ready, and has said nothing for %v: %w", p.name, readyTimeout, err)
	}
	return nil
}

// poll calls check until it returns nil, time is up, or ended is closed. What servers write to their logs is
// progress, which gives them more time.
func poll[P interface{ logSize() int64 }](check func() error, ended <-chan struct{}, servers ...P) error {
	last, said := time.Now().Add(readyTimes*readyTimeout), int64(0)
	for deadline := last; ; {
		var size int64
		for _, s := range servers {
			size += s.logSize()
		}
		now := time.Now()
		if size != said || deadline.Equal(last) {
			deadline, said = now.Add(readyTimeout), size
		}
		err := check()
		if err == nil || now.After(deadline) || now.After(last) {
			return err
		}
		select {
		case <-ended:
			return fmt.Errorf("%w: %w", errEnded, err)
		case <-time.After(pollEvery):
		}
	}
}

var errEnded = errors.New("ended")

// addrs lists the host:port of each of several servers.
func addrs[S interface{ Addr() string }](servers []S) (all []string) {
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return all
}

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

// Waits returns for each thread of the process, by its number, how long it could have run so far and had to
// wait for a processor. It is empty where the process does not run, and on systems other than Linux.
func (p *Process) Waits() map[int]time.Duration {
	waits := map[int]time.Duration{}
	if p.Running() {
		addWaits(p.Pid(), waits)
	}
	return waits
}

// Pause stops the process where it stands (SIGSTOP), and returns once it does stand still. Its
// connections stay, and the kernel goes on accepting for it. The test fails where the system cannot do
// that (Windows): call [NeedPause] first.
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
	for deadline := time.Now().Add(stopTimeout); !suspended(r.cmd.Process.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Errorf("lab: %s did not stop %v after SIGSTOP", p.name, stopTimeout)
			return
		}
	}
}

// Resume lets a paused process go on (SIGCONT). It does nothing to one that is not paused.
func (p *Process) Resume() {
	p.t.Helper()
	r, running := p.current()
	if !running {
		p.t.Errorf("lab: cannot resume %s: it is not running", p.name)
		return
	}
	if err := resume(r.cmd.Process); err != nil {
		p.t.Errorf("lab: cannot resume %s: %v", p.name, err)
	}
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

// Stop asks the process to end in good order (SIGTERM), and returns when it is gone. One that does not
// comply within 10 s is killed, and the test fails. It does nothing to one that has ended.
func (p *Process) Stop() {
	p.t.Helper()
	p.end("SIGTERM", terminate, stopTimeout)
}

// end asks the process to end, and kills it where it does not within some time.
func (p *Process) end(signal string, send func(*os.Process) error, within time.Duration) {
	p.t.Helper()
	r, running := p.current()
	if !running {
		return
	}
	if err := send(r.cmd.Process); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("lab: cannot stop %s: %v", p.name, err)
	}
	select {
	case <-r.done:
	case <-time.After(within):
		p.t.Errorf("lab: %s did not end within %v of %s and is killed", p.name, within, signal)
		p.Kill()
	}
}

// Log returns the last 16 KiB of what the process wrote, over all its starts.
func (p *Process) Log() string {
	return tail(p.log, 0)
}

// logSize returns where the log ends now, to look only at what comes after with tail.
func (p *Process) logSize() int64 {
	info, err := p.log.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// tail returns the last 16 KiB of f, and nothing from before offset from.
func tail(f *os.File, from int64) string {
	const most = 16 << 10
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	from = max(from, info.Size()-most)
	text := make([]byte, info.Size()-from)
	n, _ := f.ReadAt(text, from)
	return string(text[:n])
}

// NeedPause skips the test where processes cannot be paused.
func NeedPause(t TB) {
	t.Helper()
	if !canSuspend {
		t.Skip("lab: this system cannot pause a process")
	}
}
