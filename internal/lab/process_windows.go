package lab

import (
	"errors"
	"os"
	"os/exec"
)

const canSuspend = false

func suspend(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }

// terminate ends the process at once: there is no signal that asks it.
func terminate(p *os.Process) error { return p.Kill() }

func asUnprivileged(*exec.Cmd) error { return nil }

func giveAway(string) error { return nil }

func interrupt(p *os.Process) error { return p.Kill() }
