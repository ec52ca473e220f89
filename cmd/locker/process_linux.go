package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// endWithParent makes the kernel kill the command when the thread that started
// it ends, and with it locker. The guard does it for the rest of the group.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// onlyZombies reports whether nothing is left of a group but processes that have ended and
// that nobody has waited for. It is false where /proc does not say so of every process.
func onlyZombies(group int) (found bool) {
	self, _ := os.Readlink("/proc/self") // another number in the /proc of another namespace
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || self != strconv.Itoa(os.Getpid()) || bytes.Contains(mounts, []byte("hidepid=")) {
		return false
	}
	all, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	for _, e := range all {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // somebody has waited for it
		}
		// Behind the name, which may have parentheses, too: the state, the parent, the group, and later
		// the number of threads. The first of them may have ended before the others.
		f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		switch {
		case err != nil || len(f) < 18:
			return false
		case string(f[2]) != strconv.Itoa(group):
		case string(f[0]) == "Z" && string(f[17]) == "1":
			found = true
		default:
			return false
		}
	}
	return found
}

const platformNotes = ""
