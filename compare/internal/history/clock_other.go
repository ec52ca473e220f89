//go:build !unix

package history

import "time"

// Now returns the host's wall clock in nanoseconds: there is no monotonic clock
// here that all processes of the host share. A step of the clock while a run
// lasts makes it worthless.
func Now() int64 { return time.Now().UnixNano() }
