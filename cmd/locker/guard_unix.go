//go:build unix

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/golockers/locker/internal/clock"
	"golang.org/x/sys/unix"
)

// A guard is a second process of locker in the command's process group. It alone ends
// the group, at the times that locker tells it, or at once if locker is killed: so the
// command ends in time if locker is stopped or killed, too. As a member it also keeps
// the group's number from being used for another group.
type guard struct {
	cmd     *exec.Cmd
	orders  *os.File    // its end is the end of locker
	reports <-chan byte // what the guard has done; closed when it has ended
	last    order
}

// guardArg makes locker a guard. It is not a command for people.
const guardArg = "__guard"

// outliveArg, behind guardArg: if locker is killed, the command goes on.
const outliveArg = "outlive"

// order is all that a guard has to know: the group to join and to end, and when to send
// SIGTERM and SIGKILL, in nanoseconds since 1970. 0 means none and never.
type order struct{ Group, Terminate, Kill int64 }

var orderLen = binary.Size(order{})

// reportReady is the first report of a guard.
const reportReady = 'r'

// lockDescriptor is the guard's descriptor of a lock that is a file.
const lockDescriptor = 3

// startGuard starts a guard, and waits until it listens.
func startGuard(lock *os.File, outlive bool) (*guard, error) {
	exe := "/proc/self/exe" // also when the file was replaced since
	if runtime.GOOS != "linux" {
		var err error
		if exe, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	theirs, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	// The guard gets neither locker's environment nor its stderr: somebody may wait
	// for the end of stderr.
	cmd := exec.CommandContext(context.Background(), exe, guardArg)
	cmd.Env, cmd.Stdin, cmd.ExtraFiles = []string{}, theirs, []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if outlive {
		cmd.Args = append(cmd.Args, outliveArg)
	}
	told, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, orders.Close())
	}
	heard := make(chan byte, 8)
	go func() {
		defer close(heard)
		for b := make([]byte, 1); ; {
			if _, err := io.ReadFull(told, b); err != nil {
				return
			}
			heard <- b[0]
		}
	}()
	g := &guard{cmd: cmd, orders: orders, reports: heard}
	if <-heard != reportReady {
		g.dismiss()
		g.reap()
		return nil, errors.New("it ended at once")
	}
	return g, nil
}

// tell gives the guard its orders. The times are by the wall clock, which two processes
// share.
func (g *guard) tell(o order) {
	if o != g.last {
		g.last = o
		b, _ := binary.Append(nil, binary.BigEndian, o)
		// A guard that does not read must not block locker.
		_ = g.orders.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		_, _ = g.orders.Write(b)
	}
	// It may have been stopped together with its group.
	_ = g.cmd.Process.Signal(syscall.SIGCONT)
}

// dismiss ends the guard. Until reap, the group keeps its number.
func (g *guard) dismiss() {
	_ = g.cmd.Process.Kill()
	_ = g.orders.Close()
}

// reap is called when the guard has ended. Where locker is the first process of a container,
// it has reaped the guard already.
func (g *guard) reap() { _ = g.cmd.Wait() }

// beGuard is the whole program of a guard; done is false in any other process.
func beGuard(args []string) (status int, done bool) {
	if len(args) == 0 || args[0] != guardArg {
		return 0, false
	}
	// Signals to the group are not for the guard.
	signal.Ignore()
	report(reportReady)
	var s sentry
	for s.hear() {
		s.act()
	}
	if s.group != 0 && len(args) == 1 {
		s.endOrphans()
	}
	return 0, true
}

// sentry is the state of a guard.
type sentry struct {
	group           int // 0: none yet
	terminate, kill time.Time
	terminated      bool
}

// hear returns when there is something to do; false when locker has ended. It hears all
// orders first: a guard that was stopped may have slept over those that gave more time.
func (s *sentry) hear() bool {
	locker := []unix.PollFd{{Events: unix.POLLIN}} // stdin
	b := make([]byte, 100*orderLen)
	for {
		n, err := unix.Poll(locker, int(s.wait().Milliseconds())+1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n == 0 {
			return true
		}
		if n, err = syscall.Read(syscall.Stdin, b); errors.Is(err, syscall.EINTR) {
			continue
		}
		if n < orderLen {
			return false
		}
		var o order
		_, _ = binary.Decode(b[n-orderLen:n], binary.BigEndian, &o)
		s.obey(o)
	}
}

// wait is how long nothing has to be done. It is short, to notice a step of the wall clock.
func (s *sentry) wait() time.Duration {
	next := s.kill
	if !s.terminated {
		next = s.terminate
	}
	if s.group == 0 || next.IsZero() {
		return lookEvery
	}
	return max(0, min(left(next), lookEvery))
}

// obey notes an order. A group that was told to end is given no more time.
func (s *sentry) obey(o order) {
	// fails if all of the group has ended
	if s.group == 0 && o.Group != 0 && syscall.Setpgid(0, int(o.Group)) == nil {
		s.group = int(o.Group)
	}
	kill := instant(o.Kill)
	if s.terminated {
		if !kill.IsZero() {
			s.kill = earlier(s.kill, kill)
		}
		return
	}
	s.terminate, s.kill = instant(o.Terminate), kill
}

// instant is a time in an order, with a monotonic reading.
func instant(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Until(time.Unix(0, ns)))
}

func (s *sentry) act() {
	if s.group == 0 || s.terminate.IsZero() {
		return
	}
	if !s.terminated && left(s.terminate) <= 0 {
		s.terminated = true
		report(reportTerminated)
		_ = syscall.Kill(0, syscall.SIGTERM) // the guard is in the group
		if left(s.kill) > shortGrace {
			_ = syscall.Kill(0, syscall.SIGCONT) // a command that is stopped has time to end, too
		}
	}
	if s.terminated && left(s.kill) <= 0 {
		report(reportKilled)
		_ = syscall.Kill(0, syscall.SIGKILL)
	}
}

// endOrphans kills the group of a locker that has ended, and then frees a lock that is a
// file: a process that has left the group may still have it open.
func (s *sentry) endOrphans() {
	_ = syscall.Setpgid(0, 0)
	_ = syscall.Kill(-s.group, syscall.SIGKILL)
	if awaitEnd(s.group, time.Now().Add(orphansEnd)) {
		_ = unix.Flock(lockDescriptor, unix.LOCK_UN)
	}
}

// awaitEnd reports whether a group that was killed has ended by then, and its remains are gone.
func awaitEnd(group int, by time.Time) bool {
	for n := 0; ; n++ {
		// The first process of a container inherits what the command has left.
		for n := 1; n > 0; {
			n, _ = syscall.Wait4(-group, nil, syscall.WNOHANG, nil)
		}
		if errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) {
			return true
		}
		if !time.Now().Before(by) {
			return false
		}
		time.Sleep(clock.BackOff(n, time.Millisecond, 50*time.Millisecond))
	}
}

func report(what byte) { _, _ = os.Stdout.Write([]byte{what}) }
