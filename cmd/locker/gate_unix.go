//go:build unix

package main

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// gateLen is the length of what is said at the gate: a number.
const gateLen = 8

// beGate is the command before it runs. It waits until the guard lets it go and says until when, and becomes
// the command if it is not too late then: the guard, locker, or this process may have been stopped meanwhile.
// If it is stopped even later, the guard has the orders to kill it.
func beGate(args []string) (status int) {
	if len(args) < 4 { // called by hand
		return statusCannotRun
	}
	gate, _ := strconv.Atoi(args[0])
	syscall.CloseOnExec(gate)
	if args[1] != "true" {
		runtime.LockOSThread() // which becomes the command
		endWithParent()
	}
	say := func(n uint64) { _, _ = syscall.Write(gate, binary.BigEndian.AppendUint64(nil, n)) }
	say(0)
	b := make([]byte, gateLen)
	n, err := syscall.Read(gate, b)
	for errors.Is(err, syscall.EINTR) {
		n, err = syscall.Read(gate, b)
	}
	if n < gateLen { // the guard has ended
		return statusLost
	}
	env := os.Environ()
	if time.Now().UnixNano() >= int64(binary.BigEndian.Uint64(b)) {
		say(0)
		return statusLost
	}
	err = syscall.Exec(args[2], args[3:], env)
	var errno syscall.Errno
	errors.As(err, &errno)
	say(uint64(errno))
	return statusCannotRun
}

// firstOwn is the lowest descriptor of locker that another process inherits. Scripts use the descriptors with
// one digit (exec 3>file), which would close the lock.
const firstOwn = 10

// pair returns the two ends of a socket: the second for the next process to inherit.
func pair() (own, theirs int, err error) {
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return -1, -1, err
	}
	defer unix.Close(ends[1])
	unix.CloseOnExec(ends[0])
	if theirs, err = unix.FcntlInt(uintptr(ends[1]), unix.F_DUPFD, firstOwn); err != nil {
		_ = unix.Close(ends[0])
	}
	return ends[0], theirs, err
}
