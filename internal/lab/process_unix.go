//go:build unix

package lab

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"syscall"
)

const canSuspend = true

func suspend(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// terminate also wakes a paused process, which would not see the signal otherwise.
func terminate(p *os.Process) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.Signal(syscall.SIGCONT)
}

// unprivileged returns the account that a server runs as which refuses to run as root: nobody, if this
// process is root's, and nil otherwise.
func unprivileged() (account *syscall.Credential, err error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		return nil, fmt.Errorf("lab: an account that is not root: %w", err)
	}
	account = &syscall.Credential{}
	_, err = fmt.Sscan(u.Uid+" "+u.Gid, &account.Uid, &account.Gid)
	return account, err
}

// asUnprivileged makes a command run as an account that is not root.
func asUnprivileged(cmd *exec.Cmd) error {
	account, err := unprivileged()
	if account != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: account}
	}
	return err
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
