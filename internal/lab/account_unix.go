//go:build unix

package lab

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// unprivileged returns the account that a server runs as which refuses to run as root: nobody, if this
// process is root's, and nil otherwise.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// asUnprivileged makes a command run as an account that is not root.
func asUnprivileged(cmd *exec.Cmd) error {
	account, err := unprivileged()
	if err != nil {
		return fmt.Errorf("lab: an account that is not root: %w", err)
	}
	if account != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: account}
	}
	return nil
}

// giveAway gives a file or directory to that account.
func giveAway(path string) error {
	account, err := unprivileged()
	if err != nil || account == nil {
		return err
	}
	return os.Chown(path, int(account.Uid), int(account.Gid))
}

// interrupt asks a process to end soon (SIGINT): a database calls it a fast shutdown.
func interrupt(p *os.Process) error { return p.Signal(syscall.SIGINT) }
