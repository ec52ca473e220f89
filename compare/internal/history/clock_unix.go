//go:build unix

package history

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the host's monotonic clock in nanoseconds: the same clock in all
// processes of the host. Its zero is arbitrary.
func Now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return time.Now().UnixNano()
	}
	return t.Nano()
}
