//go:build unix

package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// firstOwn is the lowest number of a descriptor that the command gets from
// locker. Those of one digit are what scripts use (exec 3>file), and that would
// close the lock.
const firstOwn = 10

// inherit returns a descriptor of f that the next process to be started
// inherits. The lock is on the open file, not on the descriptor: whoever has
// one keeps it.
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
