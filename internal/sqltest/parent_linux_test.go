package sqltest_test

import "syscall"

// endWithParent makes the kernel kill this process when its parent dies.
func endWithParent() error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG,
		uintptr(syscall.SIGKILL), 0); errno != 0 {
		return errno
	}
	return nil
}
