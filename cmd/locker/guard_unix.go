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

// A guard is a second process of locker in the command's process group. It kills the
// whole group if locker is killed, or is stopped for so long that another may have
// the lock: nothing else would end the command then. As a member it also keeps the
// group's number from being used for another group.
type guard struct {
	pid    int
	orders *os.File // its end is the end of locker
	told   time.Time
}

// guardArg makes locker a guard. It is not a command for people.
const guardArg = "__guard"

// An order to a guard is a kind and a number.
const (
	orderGroup = 'g' // the group to join and to end
	orderTime  = 't' // when to end it unless another time is told before, in ns since 1970
)

const orderLen = 9

// startGuard starts a guard, and waits until it listens. until is when it kills the
// group if it gets no other order; zero means never.
func startGuard(until time.Time) (*guard, error) {
	theirs, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	ready, listens, err := os.Pipe()
	if err != nil {
		_ = orders.Close()
		return nil, err
	}
	defer ready.Close()
	pid, err := forkGuard(theirs, listens)
	_ = listens.Close()
	if err != nil {
		_ = orders.Close()
		return nil, err
	}
	g := &guard{pid: pid, orders: orders}
	g.mayRunUntil(until)
	if _, err := io.ReadFull(ready, make([]byte, 1)); err != nil {
		g.dismiss()
		return nil, errors.New("it ended at once")
	}
	return g, nil
}

func forkGuard(orders, listens *os.File) (pid int, err error) {
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
	// The guard gets neither locker's environment nor its stderr: somebody may wait
	// for the end of stderr.
	pid, _, err = syscall.StartProcess(exe, []string{"locker", guardArg}, &syscall.ProcAttr{
		Env:   []string{},
		Files: []uintptr{orders.Fd(), listens.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	return pid, err
}

// join makes the guard a member of the group.
func (g *guard) join(group int) { g.order(orderGroup, uint64(group)) }

// mayRunUntil tells the guard when to kill the group, by the wall clock, which two
// processes share.
func (g *guard) mayRunUntil(t time.Time) {
	if t.IsZero() || t.Equal(g.told) {
		return
	}
	g.told = t
	g.order(orderTime, uint64(t.UnixNano()))
}

func (g *guard) order(kind byte, value uint64) {
	// A guard that does not read must not block locker.
	_ = g.orders.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	_, _ = g.orders.Write(binary.BigEndian.AppendUint64([]byte{kind}, value))
}

// hasKilled reports whether the guard has killed the group because its time was over.
func (g *guard) hasKilled() bool { return !g.told.IsZero() && left(g.told) <= 0 }

// dismiss ends the guard.
func (g *guard) dismiss() {
	_ = syscall.Kill(g.pid, syscall.SIGKILL)
	_ = g.orders.Close()
	for {
		if _, err := syscall.Wait4(g.pid, nil, 0, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// beGuard is the whole program of a guard; done is false in any other process.
func beGuard(args []string) (status int, done bool) {
	if len(args) != 1 || args[0] != guardArg {
		return 0, false
	}
	// Signals to the group are not for the guard.
	signal.Ignore()
	if _, err := os.Stdout.Write([]byte{1}); err != nil {
		return statusUnavailable, true
	}
	_ = os.Stdout.Close()
	orders := make(chan order)
	go hear(orders)
	if obey(orders) {
		_ = syscall.Kill(0, syscall.SIGKILL) // the guard is in the group
	}
	return 0, true
}

type order struct {
	kind  byte
	value int64
}

// hear passes on locker's orders, and closes orders when locker has ended.
func hear(orders chan<- order) {
	defer close(orders)
	b := make([]byte, orderLen)
	for {
		if _, err := io.ReadFull(os.Stdin, b); err != nil {
			return
		}
		orders <- order{b[0], int64(binary.BigEndian.Uint64(b[1:]))}
	}
}

// obey returns when the group must be killed; false if the guard has joined none.
func obey(orders <-chan order) (joined bool) {
	var until time.Time
	timer := time.NewTimer(0)
	for {
		if joined && !until.IsZero() {
			wait := left(until)
			if wait <= 0 {
				return true
			}
			timer.Reset(min(wait, lookEvery))
		}
		select {
		case o, ok := <-orders:
			switch {
			case !ok:
				return joined
			case o.kind == orderTime:
				until = time.Now().Add(time.Until(time.Unix(0, o.value))) // with a monotonic reading
			case o.kind == orderGroup:
				// This fails if the whole group has already ended.
				joined = syscall.Setpgid(0, int(o.value)) == nil
			}
		case <-timer.C:
		}
	}
}
