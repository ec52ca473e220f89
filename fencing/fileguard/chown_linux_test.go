package fileguard_test

import (
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

// Many a service may not call chown, whatever it asks for (SystemCallFilter=~@privileged of systemd).
func TestAFileOfOnesOwnTakesNoChown(t *testing.T) {
	runtime.LockOSThread() // and never unlock it: the filter ends with the thread
	const (
		refuse = 0x00050000 // SECCOMP_RET_ERRNO and SECCOMP_RET_ALLOW of linux/seccomp.h
		allow  = 0x7fff0000
	)
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_FCHOWN},
		{Code: unix.BPF_RET, K: refuse | uint32(unix.EPERM)},
		{Code: unix.BPF_RET, K: allow},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	}
	if err != nil {
		t.Skip("no seccomp here: ", err)
	}
	path := filepath.Join(t.TempDir(), "f")
	g := guardOf(t, path)
	mustWrite(t, g, 1, "1")
	mustWrite(t, g, 2, "2")
	assert.Equal(t, "2", contentOf(t, path))
}
