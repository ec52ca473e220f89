//go:build unix && !linux

package main_test

import "testing"

// zombie is not asked elsewhere: init waits for orphans at once.
func zombie(int) bool { return false }

func awaitWaiting(t *testing.T, _ *process) { t.Skip("this system does not say who waits for a lock") }

func guardOf(t *testing.T, _ int) int {
	t.Skip("this system does not say whose child a process is")
	return 0
}
