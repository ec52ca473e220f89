//go:build unix

package lab

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// guard is a shell that kills a process when this one is gone, however it died: the shell waits for the
// end of a pipe whose other end only this process has. It is for systems whose kernel does not do that.
type guard struct {
	cmd  *exec.Cmd
	pipe *os.File
}

func startGuard(pid int) (*guard, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", `read -r never; kill -9 "$0"`,
		strconv.Itoa(pid))
	cmd.Stdin = r
	// In a group of its own, so that Ctrl-C at the terminal does not end the guard first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	_ = r.Close()
	if err != nil {
		_ = w.Close()
		return nil, err
	}
	return &guard{cmd: cmd, pipe: w}, nil
}

// stop ends the guard. It is called as soon as the guarded process was reaped: its ID may then be given
// to another process.
func (g *guard) stop() {
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
	_ = g.pipe.Close()
}
