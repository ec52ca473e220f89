//go:build !linux

package lab

import "os/exec"

// endWithParent has nothing to do: only Linux lets the kernel watch over it.
func endWithParent(*exec.Cmd) {}

// suspended is asked after the signal was sent, which elsewhere has to do.
func suspended(int) bool { return true }
