package main

import "syscall"

// endWithParent makes the kernel kill the command when the thread that started
// it ends, and with it locker. The guard does it for the rest of the group.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
