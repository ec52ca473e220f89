//go:build unix

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const platformNotes = ""

// process is the command, with the guard that has started it. The command leads a process group of its own.
type process struct {
	launch
	conn     *os.File      // to the guard, for its reports
	orders   int           // its descriptor
	reports  <-chan report // closed when the guard has ended
	guard    *os.Process
	gone     chan struct{} // closed when the guard has been waited for
	times    order         // when the command has to end
	told     order         // the last times that the guard was told
	untold   []int64       // what it was not told to do yet
	terminal *terminal

	pid    int            // of the command and its group; 0 before its start
	status int            // of the command, when it has ended
	died   syscall.Signal // of what; 0: it has ended by itself

	passed []syscall.Signal // the signals that were passed on
	waits  bool             // it was stopped because it wants the terminal
	had    bool             // the command had the terminal when it ended
}

// start starts the guard, and by it the command, which reports that it waits to be let go.
func start(l launch) (*process, error) {
	exe, err := itself()
	if err != nil {
		return nil, err
	}
	lock := -1
	if l.lock != nil {
		if lock, err = inherit(l.lock); err != nil {
			return nil, fmt.Errorf("hand down the lock: %w", err)
		}
		defer syscall.Close(lock)
	}
	own, theirs, err := pair()
	if err != nil {
		return nil, fmt.Errorf("start its guard: %w", err)
	}
	defer syscall.Close(theirs)
	_ = unix.SetNonblock(own, true) // a guard that does not read must not block locker
	p := &process{launch: l, conn: os.NewFile(uintptr(own), "guard"), orders: own, gone: make(chan struct{})}
	adoptOrphans() // if the guard is killed
	args := append([]string{exe, guardArg, strconv.Itoa(theirs), strconv.Itoa(lock),
		strconv.FormatBool(l.outlive && !l.nested), l.path}, l.args...)
	pid, err := startProcess(exe, args, l.env)
	if err == nil {
		p.guard, err = os.FindProcess(pid)
	}
	if err != nil {
		_ = p.conn.Close()
		return nil, fmt.Errorf("start its guard: %w", err)
	}
	p.terminal = openTerminal()
	reports := make(chan report, 8)
	p.reports = reports
	go p.listen(reports)
	go p.mind(pid)
	return p, nil
}

// startProcess starts a process that leads a group of its own. Until it has become another program, its parent waits for
// it, and cannot do anything else: if it is stopped by then, it is continued.
func startProcess(path string, argv, env []string) (pid int, err error) {
	stuck := time.NewTicker(100 * time.Millisecond)
	started := make(chan struct{})
	go func() {
		defer stuck.Stop()
		for {
			select {
			case <-stuck.C:
				for _, child := range children() {
					_ = syscall.Kill(child, syscall.SIGCONT)
				}
			case <-started:
				return
			}
		}
	}()
	pid, _, err = syscall.StartProcess(path, argv, &syscall.ProcAttr{
		Env: env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	close(started)
	return pid, err
}

// itself is the file of this program.
func itself() (string, error) {
	const running = "/proc/self/exe" // also when the file was replaced since
	if runtime.GOOS == "linux" && unix.Access(running, unix.X_OK) == nil {
		return running, nil
	}
	if exe, err := os.Executable(); err == nil {
		return exe, nil
	}
	exe, err := exec.LookPath(os.Args[0])
	if err != nil {
		return "", fmt.Errorf("locker cannot find its own executable, which guards the command: mount /proc, or call "+
			"locker by its path: %w", err)
	}
	return exe, nil
}

// listen passes on what the guard reports.
func (p *process) listen(reports chan<- report) {
	defer close(reports)
	for b := make([]byte, reportLen); ; {
		if _, err := io.ReadFull(p.conn, b); err != nil {
			return
		}
		var r report
		_, _ = binary.Decode(b, binary.BigEndian, &r)
		reports <- r
	}
}

// mind continues the guard when it is stopped, and waits for its end.
func (p *process) mind(guard int) {
	whom := guard
	if os.Getpid() == 1 {
		whom = -1 // the first process of a container inherits the orphans of all others
	}
	for {
		var ws syscall.WaitStatus
		child, err := syscall.Wait4(whom, &ws, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // no child is left
			return
		case child != guard:
		case ws.Stopped():
			_ = p.guard.Signal(syscall.SIGCONT)
		default:
			close(p.gone)
			if child == whom {
				return
			}
		}
	}
}

// endAt tells the guard when the command has to end.
func (p *process) endAt(terminate, kill time.Time) {
	p.times = order{Terminate: terminate.UnixNano(), Kill: kill.UnixNano()}
	p.tell()
}

// tell tells the guard what to do, and when. It does not wait: what a guard that does not read cannot be told, it is
// told at the next step.
func (p *process) tell(do ...int64) {
	p.untold = append(p.untold, do...)
	for p.times != p.told || len(p.untold) > 0 {
		o := p.times
		if len(p.untold) > 0 {
			o.Do = p.untold[0]
		}
		b, _ := binary.Append(nil, binary.BigEndian, o)
		_, err := unix.Write(p.orders, b)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return
		}
		p.told, p.untold = p.times, p.untold[min(1, len(p.untold)):]
	}
}

// giveUp kills the guard.
func (p *process) giveUp() { _ = p.guard.Signal(syscall.SIGKILL) }

// letGo lets the command, which has this process ID, run, in the foreground of the terminal if that is its place.
func (p *process) letGo(pid int) {
	p.pid = pid
	p.terminal.handOver(pid)
	// From now on locker may be in the background of its terminal. It must not be stopped for writing to it.
	ignoreTerminalOutput()
	p.tell(doLetGo)
}

// end notes how the command has ended.
func (p *process) end(how int32) {
	ws := syscall.WaitStatus(how)
	p.status = ws.ExitStatus()
	if ws.Signaled() {
		p.died = ws.Signal()
		p.status = statusSignal + int(p.died)
	}
}

// How messages call SIGTERM and SIGKILL.
const (
	saidTerminate = "sent SIGTERM, SIGKILL follows"
	saidKill      = "sent SIGKILL"
)

func (p *process) signal(sig syscall.Signal) { p.tell(int64(sig)) }

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

// toldToEnd reports whether an outer locker may have told the command to end, and cannot end what the command
// has left.
func (p *process) toldToEnd() bool {
	return !adopts && p.nested && slices.Contains(p.passed, syscall.SIGTERM)
}

const notStopped = "the command is not stopped: it would keep the lock"

// stoppedBy is called when the command was stopped and may go on.
func (p *process) stoppedBy(sig int32, n notes) {
	switch syscall.Signal(sig) {
	case syscall.SIGTSTP:
		// The shell does not know that the command was stopped (Ctrl-Z), so nobody would continue it.
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

// death returns the signal that ended the command, if one did. It is called after finish.
func (p *process) death() death {
	if p.died == 0 {
		return death{}
	}
	// A signal that locker passed on was also sent to all others for whom it was meant.
	return death{p.died, p.had && !slices.Contains(p.passed, p.died)}
}

// endAll ends all that the command has started. It reports whether it has ended by then: a process may work on
// for a while when SIGKILL was sent.
func (p *process) endAll(by time.Time) bool {
	p.tell(doEndAll)
	late := time.After(time.Until(by))
	for {
		select {
		case r, alive := <-p.reports:
			if !alive {
				select {
				case <-p.gone:
				case <-late: // what is left of it may not end at once either
					return false
				}
				return endFamily(p.pid, by, func(int, syscall.WaitStatus) {})
			}
			if r.What == reportAllEnded {
				return true
			}
		case <-time.After(lookEvery):
			p.tell()
		case <-late:
			return false
		}
	}
}

// dismiss ends the guard. What the command has left in the background goes on.
func (p *process) dismiss() {
	select {
	case <-p.gone:
	default:
		p.giveUp()
		select {
		case <-p.gone:
		case <-time.After(orphansEnd): // what is left of it does nothing any more
		}
	}
}

// finish is called when the command has ended or was not run.
func (p *process) finish() {
	p.had = p.terminal.takeBack()
	p.terminal.close()
}

// inherit returns a descriptor of f that the next process inherits. The lock is on the open file, not on the
// descriptor: it lasts while any process has a descriptor of the file.
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
