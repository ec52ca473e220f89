//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const platformNotes = ""

// process is the command, which leads a process group of its own.
type process struct {
	launch
	pid int
	*guard
	terminal *terminal

	ended   chan struct{}       // closed when the command has ended
	status  int                 // to be read after ended
	died    syscall.Signal      // of what; 0: it has ended by itself
	stopped chan syscall.Signal // the signal that has stopped the command

	passed []syscall.Signal // the signals that were passed on
	waits  bool             // it was stopped because it wants the terminal
	had    bool             // the command had the terminal when it ended
}

// start starts the command.
func start(l launch) (*process, error) {
	p := &process{
		launch:   l,
		terminal: openTerminal(),
		ended:    make(chan struct{}),
		stopped:  make(chan syscall.Signal, 8),
	}
	var err error
	if p.guard, err = startGuard(p.lock, p.outlives()); err != nil {
		p.terminal.close()
		return nil, fmt.Errorf("start its guard: %w", err)
	}
	attr := &syscall.SysProcAttr{Setpgid: true}
	if !p.outlives() {
		endWithParent(attr)
	}
	p.terminal.handOver(attr)
	started := make(chan error)
	go p.live(attr, started)
	if err := <-started; err != nil {
		p.dismiss()
		p.finish()
		return nil, err
	}
	// From now on locker may be in the background of its terminal. It must
	// not be stopped for writing to it; the command is not affected any more.
	ignoreTerminalOutput()
	return p, nil
}

// outlives reports whether the command goes on if locker is killed.
func (p *process) outlives() bool { return p.outlive && !p.nested }

// endAt tells the guard when the command has to end; zero: never.
func (p *process) endAt(terminate, kill time.Time) {
	o := order{Group: int64(p.pid)}
	if !terminate.IsZero() {
		o.Terminate, o.Kill = terminate.UnixNano(), kill.UnixNano()
	}
	p.tell(o)
}

// live starts the command and waits for its end. Both happen in one thread, since the
// kernel takes the end of that thread for the parent's death (endWithParent).
func (p *process) live(attr *syscall.SysProcAttr, started chan<- error) {
	runtime.LockOSThread()
	pid, err := fork(p.launch, attr)
	if err != nil {
		started <- err
		return
	}
	p.pid = pid
	// At once: until then, if locker is killed, only the command itself is ended, by
	// endWithParent, and not the processes that it has started.
	p.endAt(p.terminateAt, p.killAt)
	started <- nil
	defer close(p.ended)
	whom := pid
	if os.Getpid() == 1 {
		whom = -1 // the first process of a container inherits the orphans of all others
	}
	for {
		var ws syscall.WaitStatus
		child, err := syscall.Wait4(whom, &ws, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR), err == nil && child != pid:
		case err != nil: // not ours any more: cannot be
			p.status = statusCannotRun
			return
		case ws.Stopped():
			select {
			case p.stopped <- ws.StopSignal():
			default:
			}
		case ws.Signaled():
			p.died = ws.Signal()
			p.status = statusSignal + int(p.died)
			return
		case ws.Exited():
			p.status = ws.ExitStatus()
			return
		}
	}
}

func fork(l launch, attr *syscall.SysProcAttr) (pid int, err error) {
	if l.lock != nil {
		fd, err := inherit(l.lock)
		if err != nil {
			return 0, fmt.Errorf("hand down the lock: %w", err)
		}
		defer syscall.Close(fd)
	}
	pid, _, err = syscall.StartProcess(l.path, l.args, &syscall.ProcAttr{
		Env: l.env, Files: []uintptr{0, 1, 2}, Sys: attr,
	})
	return pid, err
}

// How messages call SIGTERM and SIGKILL.
const (
	saidTerminate = "sent SIGTERM, SIGKILL follows"
	saidKill      = "sent SIGKILL"
)

// kill ends the group.
func (p *process) kill() { p.signal(syscall.SIGKILL) }

func (p *process) signal(sig syscall.Signal) {
	// An error means that no process is left, or none to which this user may send a
	// signal; docs/run.md says so.
	_ = syscall.Kill(-p.pid, sig)
}

// forward passes a signal on to the group.
func (p *process) forward(sig os.Signal, n notes) {
	switch s := sig.(syscall.Signal); s {
	case syscall.SIGPIPE: // locker's own stderr
	case syscall.SIGTSTP:
		n.say(notStopped)
	default:
		p.passed = append(p.passed, s)
		p.signal(s)
	}
}

// toldToEnd reports whether an outer locker may have told the command to end. The
// SIGKILL of the outer locker would not reach processes that the command has left.
func (p *process) toldToEnd() bool { return p.nested && slices.Contains(p.passed, syscall.SIGTERM) }

const notStopped = "the command is not stopped: it would keep the lock"

// stoppedBy is called when the command was stopped and may go on.
func (p *process) stoppedBy(sig syscall.Signal, n notes) {
	switch sig {
	case syscall.SIGTSTP:
		// The shell does not know that the command was stopped (Ctrl-Z), so nobody
		// would continue it.
		p.signal(syscall.SIGCONT)
		n.say(notStopped)
	case syscall.SIGTTIN, syscall.SIGTTOU:
		p.waits = true
		if p.look(); p.waits {
			n.say("the command waits for the terminal, and keeps the lock: bring it to the foreground, or " +
				"end it")
		}
	}
}

// look gives the terminal to a command that waits for it, as soon as locker has it.
func (p *process) look() {
	if p.waits && p.terminal.giveTo(p.pid) {
		p.waits = false
		p.signal(syscall.SIGCONT)
	}
}

// death returns the signal that ended the command, if one did. It is called after
// finish.
func (p *process) death() death {
	if p.died == 0 {
		return death{}
	}
	// A signal that locker passed on was also sent to all others for whom it was
	// meant.
	return death{p.died, p.had && !slices.Contains(p.passed, p.died)}
}

// dismiss ends the guard, and returns what it has reported and nobody has heard yet. The
// group keeps its number until finish.
func (p *process) dismiss() (reported []byte) {
	p.guard.dismiss()
	for what := range p.reports {
		reported = append(reported, what)
	}
	return reported
}

// endAll is finish for a command whose whole group has to end. It reports whether the group
// has ended by then: a process may work on for a while when SIGKILL was sent.
func (p *process) endAll(by time.Time) bool {
	p.kill()
	p.finish()
	return awaitEnd(p.pid, by)
}

// finish is called after dismiss, when the command has ended or was not started.
func (p *process) finish() {
	p.had = p.terminal.takeBack()
	p.terminal.close()
	p.reap()
}

// firstOwn is the lowest descriptor that the command inherits from locker. Scripts
// use the descriptors with one digit (exec 3>file), which would close the lock.
const firstOwn = 10

// inherit returns a descriptor of f that the next process inherits. The lock is on
// the open file, not on the descriptor: it lasts while any process has a descriptor
// of the file.
func inherit(f *os.File) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	var dup error
	err = raw.Control(func(own uintptr) {
		syscall.ForkLock.Lock()
		defer syscall.ForkLock.Unlock()
		fd, dup = unix.FcntlInt(own, unix.F_DUPFD, firstOwn)
	})
	if err != nil {
		return -1, err
	}
	return fd, dup
}
