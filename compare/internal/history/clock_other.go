//go:build !unix

package history

import "time"

// Now returns the host's wall clock in nanoseconds: this system has no monotonic clock that all its
// processes share. A step of the clock makes the run worthless.
func Now() int64 { return time.Now().UnixNano() }
