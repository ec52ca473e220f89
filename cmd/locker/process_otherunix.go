//go:build unix && !linux

package main

import "syscall"

// endWithParent has nothing to do: only Linux ends a process with its parent.
// The guard does it for the whole group.
func endWithParent(*syscall.SysProcAttr) {}
