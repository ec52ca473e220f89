//go:build unix

package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

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
