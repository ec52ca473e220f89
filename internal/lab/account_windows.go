package lab

import (
	"os"
	"os/exec"
)

func asUnprivileged(*exec.Cmd) error { return nil }

func giveAway(string) error { return nil }

func interrupt(p *os.Process) error { return p.Kill() }
