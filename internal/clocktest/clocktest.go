// Package clocktest makes times at which the two clocks of a machine disagree,
// for tests of what has to hold by each of them (R4).
package clocktest

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// WallBack returns at as it would read had the wall clock been d behind when it
// was taken, with the same monotonic reading: since then, the wall clock has gone
// d further than the monotonic one, as while a machine sleeps. With a negative d
// it was set back. d is whole seconds.
func WallBack(t *testing.T, at time.Time, d time.Duration) time.Time {
	t.Helper()
	type layout struct { // of time.Time
		wall uint64 // 1 bit: has a monotonic reading; 33 bits: seconds; 30 bits: nanoseconds
		ext  int64
		loc  *time.Location
	}
	back := at
	p := (*layout)(unsafe.Pointer(&back))
	p.wall -= uint64(d/time.Second) << 30
	require.Equal(t, -d, back.Round(0).Sub(at.Round(0)), "the layout of time.Time has changed")
	require.Zero(t, back.Sub(at), "the layout of time.Time has changed")
	return back
}
