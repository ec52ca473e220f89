//go:build unix && !linux

package main_test

import "testing"

// zombie is not asked elsewhere: init waits for orphans at once.
func zombie(int) bool { return false }

func awaitWaiting(t *testing.T, _ *process) { t.Skip("this system does not say who waits for a lock") }

// awaitGuard cannot look here: a guard joins long before a command has started others.
func awaitGuard(*testing.T, int) int { return 0 }
