package locker

import (
	"math/rand/v2"
	"time"
)

// randomUpTo returns a random duration from 0 up to d.
func randomUpTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}

// jitter returns a random duration from d/2 up to 3d/2, so that those who
// failed together do not try again together.
func jitter(d time.Duration) time.Duration { return d/2 + randomUpTo(d) }

// backOff returns first for n = 0, and twice as much for each n, up to last.
func backOff(n int, first, last time.Duration) time.Duration {
	for ; n > 0 && first < last; n-- {
		first *= 2
	}
	return min(first, last)
}
