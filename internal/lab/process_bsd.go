//go:build unix && !linux

package lab

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// endWithParent has nothing to do: only Linux lets the kernel watch over it. See guardOrphan.
func endWithParent(*exec.Cmd) {}

// guardOrphan starts a shell that kills a process when this one is gone, however it died: the shell waits for the end
// of a pipe whose other end only this process has. It is stopped as soon as the process was reaped, whose ID may then
// be given to another.
func guardOrphan(pid int) (stop func(), err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", `read -r never; kill -9 "$0"`, strconv.Itoa(pid))
	cmd.Stdin = r
	// In a group of its own, so that Ctrl-C at the terminal does not end the guard first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	_ = r.Close()
	if err != nil {
		_ = w.Close()
		return nil, err
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = w.Close()
	}, nil
}

// suspended reports whether a process stands still.
func suspended(pid int) bool {
	state, err := exec.CommandContext(context.Background(), "ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.HasPrefix(strings.TrimSpace(string(state)), "T")
}
