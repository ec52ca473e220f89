//go:build unix && !linux

package lab

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// endWithParent has nothing to do: only Linux lets the kernel watch over it. See guardOrphan.
func endWithParent(*exec.Cmd) {}

// guardOrphan kills the process when this one is gone.
func guardOrphan(pid int) (func(), error) {
	g, err := startGuard(pid)
	if err != nil {
		return nil, err
	}
	return g.stop, nil
}

// addWaits has nothing to add: only Linux tells.
func addWaits(int, map[int]time.Duration) {}

// suspended reports whether a process stands still.
func suspended(pid int) bool {
	state, err := exec.CommandContext(context.Background(), "ps", "-o", "state=", "-p",
		strconv.Itoa(pid)).Output()
	return err == nil && strings.HasPrefix(strings.TrimSpace(string(state)), "T")
}
