//go:build unix

package testserver

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// guard starts a shell that kills process pid when this process is gone, however it died: the shell
// waits for the end of a pipe whose other end only this process has. The guard ends when stop is
// called, which must be after pid was reaped.
func guard(pid int) (stop func(), err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/bin/sh", "-c", `read -r never; kill -9 "$0"`, strconv.Itoa(pid))
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
