package clock_test

import (
	"testing"
	"time"

	"github.com/golockers/locker/internal/clock"
	"github.com/stretchr/testify/assert"
)

// What is printed can be given back.
func TestDurationsAreReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0s": 0, "1ms": time.Millisecond, "30s": 30 * time.Second, "1m30s": 90 * time.Second, "2h": 2 * time.Hour,
		"30d": 720 * time.Hour, "-3s": -3 * time.Second, "1h0m1s": time.Hour + time.Second,
	} {
		got, err := clock.ParseDuration(text)
		assert.NoError(t, err, text)
		assert.Equal(t, want, got, text)
		assert.Equal(t, text, clock.Text(want))
	}
	mixed, err := clock.ParseDuration("1d12h")
	assert.NoError(t, err)
	assert.Equal(t, 36*time.Hour, mixed)
	for _, wrong := range []string{"", "d", "3", "3x", "-1d", "1.5d", "1d-1h", "1d+1h", "1d1d", "65535d1000000h", "99999999d"} {
		_, err := clock.ParseDuration(wrong)
		assert.Error(t, err, wrong)
	}
}
