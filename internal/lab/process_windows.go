package lab

import (
	"errors"
	"os"
	"os/exec"
)

const canSuspend = false

// endWithParent has nothing to do: children notice by themselves that their standard input has ended,
// and none of the servers is started on Windows.
func endWithParent(*exec.Cmd) {}

func guardOrphan(int) (func(), error) { return func() {}, nil }

func suspend(*os.Process) error { return errors.ErrUnsupported }

func suspended(int) bool { return false }

func resume(*os.Process) error { return errors.ErrUnsupported }

// terminate ends the process at once: there is no signal that asks it.
func terminate(p *os.Process) error { return p.Kill() }

func asUnprivileged(*exec.Cmd) error { return nil }

func giveAway(string) error { return nil }

func interrupt(p *os.Process) error { return p.Kill() }
