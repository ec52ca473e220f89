//go:build unix

package main

import (
	"encoding/binary"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/golockers/locker/internal/clock"
	"golang.org/x/sys/unix"
)

// A guard is a second process of locker, between locker and the command. It starts the command, and alone
// decides whether it begins and when it ends: at the times that locker tells it, or at once if locker is
// killed. So the command ends in time if locker is stopped or killed, too. On Linux, the guard also inherits
// what the command has started and left, and ends it. It is in a process group of its own.
//
// Had locker started the command, a locker stopped between its last look at the lease and the start, or
// between the start and the guard's first order, would let two commands run. Guard and locker adopt orphans
// on Linux, since what has left the group (timeout, setsid) would otherwise write while the next holder has
// the lock. They kill only their own children and the command's group: a process ID is not used again
// before its parent has waited for it. Each renewal reaches the guard at once: if locker looked only at the
// time of SIGTERM, it would wake together with the guard, which could end the command of a lease that was
// renewed. The guard keeps the lock's file, since commands close what they inherit.
//
// The command is a third process of locker at first (gate_unix.go), which becomes the command when the
// guard lets it: a guard that is stopped before that is no danger, since nothing runs, and one that is
// stopped later has its orders.

// Arguments that make locker a guard, and the command before it runs. They are not for people.
const (
	guardArg = "__guard"
	gateArg  = "__gate"
)

// order is what locker tells the guard: what to do at once, and until when the command may run. The times are
// in nanoseconds since 1970, by the wall clock, which two processes share; 0 is never.
type order struct{ Do, Terminate, Kill int64 }

// What an order may ask for, apart from a signal to pass on, which has its number.
const (
	doNothing = 0
	doLetGo   = -1 // the command may run
	doEndAll  = -2 // end all that the command has started, and report when nothing is left
)

var (
	orderLen  = binary.Size(order{})
	reportLen = binary.Size(report{})
)

// sentry is the state of a guard.
type sentry struct {
	locker  int // the socket to locker
	gate    int // the socket to the command until it runs; then -1
	woken   int // can be read when a child has changed
	lock    int // a lock that is a file; otherwise -1
	outlive bool

	command         int // its process ID, and the number of its group; 0 before its start
	letGo           bool
	ended           report // how the command has ended
	terminate, kill time.Time
	terminated      bool      // the command was sent SIGTERM
	patience        time.Time // until when a guard that is late lets locker speak first; zero: it was not late
	last            order
	alone           bool // locker has ended
}

// beGuard is the whole program of a guard, and of a command that does not run yet; done is false in any
// other process.
func beGuard(args []string) (status int, done bool) {
	switch {
	case len(args) > 0 && args[0] == gateArg:
		return beGate(args[1:]), true
	case len(args) == 0 || args[0] != guardArg:
		return 0, false
	case len(args) < 6: // called by hand
		return 0, true
	}
	runtime.LockOSThread() // its end would be that of the command (endWithParent)
	s := sentry{gate: -1, outlive: args[3] == "true"}
	s.locker, _ = strconv.Atoi(args[1])
	s.lock, _ = strconv.Atoi(args[2])
	syscall.CloseOnExec(s.locker)
	_ = unix.SetNonblock(s.locker, true)
	adoptOrphans()
	if err := s.heedSignals(); err != nil {
		return 0, true
	}
	s.start(args[4], args[5:])
	for s.hear(s.wait()) && !s.due() {
	}
	if s.alone && s.letGo && s.outlive {
		outlast(s.command)
		return 0, true // and so ends the lock
	}
	if !s.endedByItself() {
		endFamily(s.command, time.Time{}, s.reaped)
	}
	for !s.alone {
		s.report(report{reportAllEnded, 0}) // more than once: a locker that was stopped had no space for it
		s.hear(lookEvery)
	}
	if s.lock >= 0 {
		// Where orphans are not adopted, one that has left the group may have the file open.
		_ = unix.Flock(s.lock, unix.LOCK_UN)
	}
	return 0, true
}

// heedSignals lets no signal end the guard, such as one to all processes of a service. They must not be
// ignored: the command would inherit that.
func (s *sentry) heedSignals() error {
	var wake [2]int
	if err := unix.Pipe(wake[:]); err != nil {
		return err
	}
	syscall.CloseOnExec(wake[0])
	syscall.CloseOnExec(wake[1])
	s.woken = wake[0]
	children, unheard := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for sig := syscall.Signal(1); sig < 32; sig++ {
		if sig != syscall.SIGCHLD && sig != syscall.SIGURG && !signal.Ignored(sig) {
			signal.Notify(unheard, sig)
		}
	}
	go func() {
		for range children {
			_, _ = syscall.Write(wake[1], []byte{0})
		}
	}()
	return nil
}

// start starts the command, up to its gate.
func (s *sentry) start(path string, argv []string) {
	own, theirs, err := pair()
	if err == nil {
		s.gate = own
		_ = unix.SetNonblock(own, true)
		args := append([]string{os.Args[0], gateArg, strconv.Itoa(theirs), strconv.FormatBool(s.outlive), path},
			argv...)
		s.command, err = startProcess(os.Args[0], args, os.Environ())
		_ = syscall.Close(theirs)
	}
	if err != nil {
		s.command = 0
		s.unrun(err)
	}
	// Somebody may wait for the end of these.
	for fd := range 3 {
		_ = syscall.Close(fd)
	}
}

// hear returns after a while, or when there may be something to do; false when all has to end. It hears all
// orders first: a guard that was stopped may have slept over those that gave more time.
func (s *sentry) hear(wait time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(s.locker), Events: unix.POLLIN}, {Fd: int32(s.gate), Events: unix.POLLIN},
		{Fd: int32(s.woken), Events: unix.POLLIN}}
	_, _ = unix.Poll(fds, int(wait.Milliseconds())+1)
	b := make([]byte, 100*orderLen)
	if fds[2].Revents != 0 {
		_, _ = syscall.Read(s.woken, b)
	}
	s.hearGate()
	for reap(-1, s.reaped) > 0 {
	}
	if s.ended.What != 0 {
		s.report(s.ended) // until locker dismisses the guard: it may have been stopped, and its socket full
	}
	for {
		n, err := syscall.Read(s.locker, b)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return true
		case n < orderLen:
			s.alone = true
			return false
		}
		for ; n >= orderLen; n -= orderLen {
			var o order
			_, _ = binary.Decode(b, binary.BigEndian, &o)
			copy(b, b[orderLen:])
			if o.Do == doEndAll {
				return false
			}
			s.obey(o)
		}
	}
}

// hearGate hears whether the command waits at its gate, runs, or cannot run.
func (s *sentry) hearGate() {
	if s.gate < 0 {
		return
	}
	b := make([]byte, gateLen)
	n, err := syscall.Read(s.gate, b)
	switch {
	case errors.Is(err, syscall.EINTR), errors.Is(err, syscall.EAGAIN):
	case n == gateLen && s.letGo:
		s.unrun(syscall.Errno(binary.BigEndian.Uint64(b)))
	case n == gateLen:
		s.report(report{reportAtGate, int32(s.command)})
	default: // to execute the command has closed it
		s.closeGate()
		if s.letGo {
			s.report(report{reportBegun, 0})
		}
	}
}

func (s *sentry) closeGate() {
	_ = syscall.Close(s.gate)
	s.gate = -1
}

// unrun reports that the command was not run, and never will be.
func (s *sentry) unrun(why error) {
	if s.gate >= 0 {
		s.closeGate()
	}
	var errno syscall.Errno
	errors.As(why, &errno)
	s.report(report{reportUnrun, int32(errno)})
}

// reaped is called with each child that has changed.
func (s *sentry) reaped(pid int, ws syscall.WaitStatus) {
	switch {
	case pid != s.command:
	case ws.Stopped():
		s.report(report{reportStopped, int32(ws.StopSignal())})
	case s.letGo:
		s.hearGate()
		s.ended = report{reportEnded, int32(ws)}
		s.report(s.ended)
	default: // before it ran, and it never will
		s.ended = report{reportUnrun, int32(syscall.ESRCH)}
		s.unrun(syscall.ESRCH)
	}
}

// endedByItself reports whether the command ended before it was told to: what it has left goes on, even if its lock is
// lost before locker hears of that.
func (s *sentry) endedByItself() bool { return s.ended.What == reportEnded && !s.terminated }

// wait is how long nothing has to be done. It is short, to notice a step of the wall clock.
func (s *sentry) wait() time.Duration {
	next := s.kill
	switch {
	case !s.letGo, s.endedByItself():
		return lookEvery
	case !s.terminated && left(s.patience) > 0:
		next = s.patience
	case !s.terminated:
		next = s.terminate
	}
	return max(0, min(left(next), lookEvery))
}

// obey does what an order says. Only a renewal gives the command more time, and none does once it was told to end.
func (s *sentry) obey(o order) {
	if terminate, kill := instant(o.Terminate), instant(o.Kill); o.Terminate != s.last.Terminate || o.Kill != s.last.Kill {
		if s.letGo && (s.terminated || !terminate.After(s.terminate)) {
			kill = earlier(s.kill, kill)
		}
		if s.kill = kill; !s.terminated {
			s.terminate = terminate
		}
	}
	if o.Terminate != s.last.Terminate {
		s.patience = time.Time{}
	} else if !s.patience.IsZero() {
		s.patience = time.Now() // locker has spoken
	}
	s.last = o
	switch {
	case o.Do == doLetGo && s.letGo:
	case o.Do == doLetGo && left(s.terminate) <= 0:
		s.unrun(nil)
	case o.Do == doLetGo && s.gate >= 0:
		// The guard may be stopped here: the command itself looks at the time once more.
		s.letGo = true
		_, _ = syscall.Write(s.gate, binary.BigEndian.AppendUint64(nil, uint64(o.Terminate)))
	case o.Do > 0:
		s.signal(syscall.Signal(o.Do))
	}
}

// instant is a time in an order, with a monotonic reading.
func instant(ns int64) time.Time { return time.Now().Add(time.Until(time.Unix(0, ns))) }

// signal sends a signal to the command's group, whose number is its own until the command is reaped.
func (s *sentry) signal(sig syscall.Signal) {
	if s.command != 0 && s.ended.What == 0 {
		// An error means that this user may send it to none of them; docs/run.md says so.
		_ = syscall.Kill(-s.command, sig)
	}
}

// overslept is how late a guard must be to ask itself whether locker was stopped, too.
const overslept = 10 * time.Millisecond

// due tells the command to end when it is time, and reports whether all has to end.
func (s *sentry) due() bool {
	if !s.letGo || s.endedByItself() || left(s.terminate) > 0 {
		return false
	}
	if !s.terminated {
		if s.patience.IsZero() && left(s.terminate) < -overslept {
			// locker may have said that the lock was renewed, or be about to.
			s.patience = time.Now().Add(max(0, min(left(s.kill)/4, shortGrace/2)))
			return false
		}
		if left(s.patience) > 0 {
			return false
		}
		s.terminated = true
		s.report(report{reportTerminated, 0})
		s.signal(syscall.SIGTERM)
		if left(s.kill) > shortGrace {
			s.signal(syscall.SIGCONT) // a command that is stopped has time to end, too
		}
	}
	if left(s.kill) > 0 {
		return false
	}
	s.report(report{reportKilled, 0})
	return true
}

// report tells locker something. A locker that does not read must not block the guard.
func (s *sentry) report(r report) {
	b, _ := binary.Append(nil, binary.BigEndian, r)
	_, _ = syscall.Write(s.locker, b)
}

// endFamily kills the command's group and, on Linux, everything else that the command has started: each
// round kills the children of this process, which then inherits theirs. It reports whether all have ended by
// then; a zero time is never.
func endFamily(group int, by time.Time, reaped func(int, syscall.WaitStatus)) bool {
	for n := 0; ; n++ {
		inGroup := 1
		for group != 0 && inGroup > 0 {
			inGroup = reap(-group, reaped)
		}
		if group != 0 && (inGroup == 0 || !adopts) {
			_ = syscall.Kill(-group, syscall.SIGKILL) // a child in it keeps its number from being used again
		}
		for _, pid := range children() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		remaining := reap(-1, reaped)
		for ; remaining > 0; remaining = reap(-1, reaped) {
			n = -1 // their children are next, at once
		}
		if remaining < 0 && (adopts || group == 0 || errors.Is(syscall.Kill(-group, 0), syscall.ESRCH)) {
			return true
		}
		if !by.IsZero() && !time.Now().Before(by) {
			return false
		}
		time.Sleep(clock.BackOff(max(n, 0), time.Millisecond, 50*time.Millisecond))
	}
}

// reap calls reaped for a child among those that wait4 calls whom if it has changed, and returns its process
// ID; 0 if none has, -1 if there are none.
func reap(whom int, reaped func(int, syscall.WaitStatus)) int {
	var ws syscall.WaitStatus
	for {
		pid, err := syscall.Wait4(whom, &ws, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return -1
		case pid > 0:
			reaped(pid, ws)
		}
		return pid
	}
}

// outlast returns when all that the command has started has ended, or where orphans are not adopted, its
// group.
func outlast(group int) {
	for {
		_, err := syscall.Wait4(-1, nil, 0, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	for !adopts && !errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) {
		time.Sleep(50 * time.Millisecond)
	}
}
