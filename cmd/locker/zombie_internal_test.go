//go:build linux

package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAProcessIsNoZombieBeforeItsLastThreadHasEnded(t *testing.T) {
	c := exec.CommandContext(t.Context(), os.Args[0], "role", "headless")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, c.Start())
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(c.Process.Pid) + "/stat")
		return err == nil && strings.Contains(string(stat), ") Z ")
	}, 20*time.Second, time.Millisecond)
	assert.False(t, onlyZombies(c.Process.Pid))
	require.NoError(t, c.Process.Kill())
	assert.Eventually(t, func() bool { return onlyZombies(c.Process.Pid) }, 20*time.Second, time.Millisecond)
	assert.Error(t, c.Wait(), "it was killed")
	assert.False(t, onlyZombies(c.Process.Pid), "nothing is left")
}
