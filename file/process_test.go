//go:build linux || darwin

package file_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
)

// A child holds the lock together with its parent only if it was given the file, and only until Unlock.
func TestChildrenOfAHolder(t *testing.T) {
	for _, c := range []struct {
		given, unlocks string
		held           bool
	}{{"not given", "dies", false}, {"given", "dies", true}, {"given", "unlocks", false}} {
		t.Run(c.given+", parent "+c.unlocks, func(t *testing.T) {
			dir := t.TempDir()
			parent := lab.StartChild(t, "heir", dir, "n", c.given)
			pid := must(strconv.Atoi(parent.Expect(t, "child", patience)))
			kill := func() { _ = must(os.FindProcess(pid)).Kill() }
			t.Cleanup(kill)
			if c.unlocks == "dies" {
				parent.Kill()
			} else {
				parent.Send(t, "unlock")
				require.Equal(t, "<nil>", parent.Expect(t, "unlocked", patience))
			}
			client := newClient(t, dir, nil)
			assert.Equal(t, c.held, must(client.Inspect(t.Context(), "n")).Held)
			lease, err := client.TryLock(t.Context(), "n")
			if c.held {
				require.ErrorIs(t, err, driver.ErrHeld)
				kill()
				lease = mustLock(t, client, "n")
			} else {
				require.NoError(t, err)
			}
			assert.NoError(t, lease.Unlock(t.Context()))
		})
	}
}
