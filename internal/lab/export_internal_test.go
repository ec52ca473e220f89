package lab

import "time"

// SetReadyTimeout makes servers give up sooner.
func SetReadyTimeout(t TB, d time.Duration) {
	was := readyTimeout
	readyTimeout = d
	t.Cleanup(func() { readyTimeout = was })
}
