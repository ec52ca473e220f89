// Package clock has what every part of the repository needs to know of time:
// deadlines that hold in two clocks (R4), random delays, and a sleep that a
// context ends.
//
// A time from [time.Now] has two readings. The monotonic one stands still
// while a machine sleeps; the wall clock can be set. A deadline is over when
// either of them says so. A wall clock that is stepped forward then ends a
// lease early, and nothing ends one late.
package clock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Passed reports whether deadline is over by the monotonic or the wall clock.
func Passed(deadline, now time.Time) bool { return Left(deadline, now) <= 0 }

// Left returns the time from now to the deadline by the clock that says less.
func Left(deadline, now time.Time) time.Duration {
	return min(deadline.Sub(now), deadline.Round(0).Sub(now.Round(0)))
}

// Elapsed returns the time between two readings by the clock that says more.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// Stepped returns how far the wall clock has moved against the monotonic
// clock between two readings.
func Stepped(from, to time.Time) time.Duration {
	return to.Round(0).Sub(from.Round(0)) - to.Sub(from)
}

// Century is how far away the end of what has no end is: a time that far from now can be
// held against others, be given to [context.WithDeadline] and be written down, and a
// zero time is over at once.
const Century = 100 * 365 * 24 * time.Hour

// Endless reports whether deadline stands for no deadline.
func Endless(deadline time.Time) bool { return time.Until(deadline) > Century/2 }

// UpTo returns a random duration of at least 0 and less than d.
func UpTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}

// Jitter returns a random duration from d/2 to 3d/2, so that callers that
// failed together do not try again together.
func Jitter(d time.Duration) time.Duration { return d/2 + UpTo(d) }

// BackOff returns first for n = 0, and twice as much for each further n, up to
// last.
func BackOff(n int, first, last time.Duration) time.Duration {
	for ; n > 0 && first < last; n-- {
		first *= 2
	}
	return min(first, last)
}

// Over is nil while ctx lasts, and then its error, which matches its cause, too.
func Over(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Sleep returns nil after d, or the context's error as soon as ctx is done.
func Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
