//go:build unix

package history

import "golang.org/x/sys/unix"

// Now returns the host's monotonic clock in nanoseconds: the same clock in all
// processes of the host. Its zero is arbitrary.
func Now() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // every Unix has it
	return t.Nano()
}
