package main_test

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"os"
)

// As the first process of a container, locker inherits orphans, which would
// stay as zombies for ever.
func TestFirstProcessOfAContainerReapsOrphans(t *testing.T) {
	alone := func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
	}
	probe := exec.CommandContext(t.Context(), "true")
	alone(probe)
	if err := probe.Run(); err != nil {
		t.Skipf("this system lets nobody make a process namespace: %v", err)
	}
	// The orphan's parent ends first; then the orphan, which kill -0 finds as
	// long as nobody has reaped it.
	const script = `
		orphan=$(sh -c 'sleep 0.05 >/dev/null & echo $!')
		[ $$ -gt 1 ] || exit 9
		for i in $(seq 500); do kill -0 "$orphan" 2>/dev/null || { echo reaped; exit 0; }; sleep 0.01; done
		exit 8`
	r := do(t, []with{fileBackend(t), alone}, "run", "a", "--", "sh", "-c", script)
	assert.Equal(t, result{0, "reaped", ""}, r)
}
