//go:build unix

package main

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// A guard is a second process of locker. It leads the command's process group,
// and ends all of it when locker is killed, or is stopped for so long that
// the lock may be somebody else's: then nothing else would. It also keeps the
// group's number from being used for another group.
type guard struct {
	pid  int
	pipe *os.File // its end is the end of locker
	told time.Time
}

// guardArg makes locker a guard. It is no command for people.
const guardArg = "__guard"

// startGuard starts a guard and waits until it is on duty. until is when it is
// to end the group if it hears nothing more; zero means never.
func startGuard(until time.Time) (*guard, error) {
	orders, pipe, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer orders.Close()
	ready, onDuty, err := os.Pipe()
	if err != nil {
		_ = pipe.Close()
		return nil, err
	}
	defer ready.Close()
	pid, err := forkGuard(orders, onDuty)
	_ = onDuty.Close()
	if err != nil {
		_ = pipe.Close()
		return nil, err
	}
	g := &guard{pid: pid, pipe: pipe}
	g.mayRunUntil(until)
	if _, err := io.ReadFull(ready, make([]byte, 1)); err != nil {
		g.dismiss()
		return nil, errors.New("it ended at once")
	}
	return g, nil
}

func forkGuard(orders, onDuty *os.File) (pid int, err error) {
	exe := "/proc/self/exe" // also when the file was replaced since
	if runtime.GOOS != "linux" {
		if exe, err = os.Executable(); err != nil {
			return 0, err
		}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	// It gets nothing of locker's environment, nor its stderr, whose end
	// somebody may wait for.
	pid, _, err = syscall.StartProcess(exe, []string{"locker", guardArg}, &syscall.ProcAttr{
		Env:   []string{},
		Files: []uintptr{orders.Fd(), onDuty.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	return pid, err
}

// mayRunUntil tells the guard when to end the group unless it hears of a
// later time before. The wall clock is what two processes have in common.
func (g *guard) mayRunUntil(t time.Time) {
	if t.IsZero() || t.Equal(g.told) {
		return
	}
	g.told = t
	// A guard that does not read must not hold up locker.
	_ = g.pipe.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	_, _ = g.pipe.Write(binary.BigEndian.AppendUint64(nil, uint64(t.UnixNano())))
}

// hasStruck reports whether the guard has ended the group because its time
// was over.
func (g *guard) hasStruck() bool { return !g.told.IsZero() && left(g.told) <= 0 }

// dismiss ends the guard.
func (g *guard) dismiss() {
	_ = syscall.Kill(g.pid, syscall.SIGKILL)
	_ = g.pipe.Close()
	for {
		if _, err := syscall.Wait4(g.pid, nil, 0, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// beGuard is all that a guard does; done is false in any other process.
func beGuard(args []string) (status int, done bool) {
	if len(args) != 1 || args[0] != guardArg {
		return 0, false
	}
	if syscall.Getpgrp() != os.Getpid() {
		return statusUsage, true // the group of somebody else
	}
	// What the group gets is not for the guard.
	signal.Ignore()
	if _, err := os.Stdout.Write([]byte{1}); err != nil {
		return statusUnavailable, true
	}
	_ = os.Stdout.Close()
	times := make(chan time.Time)
	go hear(times)
	guardGroup(times)
	_ = syscall.Kill(0, syscall.SIGKILL) // the guard is among them
	return 0, true
}

// hear passes on what locker says, and closes times when locker is no more.
func hear(times chan<- time.Time) {
	defer close(times)
	b := make([]byte, 8)
	for {
		if _, err := io.ReadFull(os.Stdin, b); err != nil {
			return
		}
		wall := time.Unix(0, int64(binary.BigEndian.Uint64(b)))
		times <- time.Now().Add(time.Until(wall)) // with a monotonic reading
	}
}

// guardGroup returns when the group must end.
func guardGroup(times <-chan time.Time) {
	var until time.Time
	timer := time.NewTimer(0)
	for {
		if !until.IsZero() {
			wait := left(until)
			if wait <= 0 {
				return
			}
			timer.Reset(min(wait, lookEvery))
		}
		select {
		case t, ok := <-times:
			if !ok {
				return
			}
			until = t
		case <-timer.C:
		}
	}
}
