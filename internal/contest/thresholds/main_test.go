package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestThresholds(t *testing.T) {
	const rounds = `
goos: linux
BenchmarkFiveRedis/free,goroutines=256/locker-2 	    1000	     30000 ns/op
BenchmarkFiveRedis/free,goroutines=256/locker#01-2 	    1000	     32000 ns/op
BenchmarkFiveRedis/free,goroutines=256/locker-2 	    1000	     90000 ns/op	 7 B/op
BenchmarkFiveRedis/free,goroutines=256/redsync-2 	    1000	     31100 ns/op
BenchmarkFiveRedis/free,goroutines=256/before-2 	    1000	     31000 ns/op
BenchmarkRedis/beside=redislock/clients=4,goroutines=64/locker-2 	  10	 5 ns/op	 2000 p99-ns
BenchmarkRedis/beside=redislock/clients=4,goroutines=64/before-2 	  10	 5 ns/op	 1000 p99-ns
`
	f, err := read(strings.NewReader(rounds))
	require.NoError(t, err)
	var said strings.Builder
	assert.False(t, judge(&said, f))
	for what, verdict := range map[string]string{
		"redlock, 256 callers, next to redsync":         "1.03 × (ns/op), 1.00 at most: met",
		"redlock, 256 callers, next to fc6f864":         "1.03 × (ns/op), 1.00 at most: not met",
		"redlock, 256 callers, fenced next to unfenced": "0.00 × (ns/op), 1.67 at most: not measured",
		"one name, 4 × 16 callers, p99 next to fc6f864": "2.00 × (p99-ns), 1.00 at most: not met",
	} {
		found := false
		for line := range strings.Lines(said.String()) {
			found = found || strings.HasPrefix(line, what) && strings.HasSuffix(line, verdict+"\n")
		}
		assert.True(t, found, "%s: %s in\n%s", what, verdict, said.String())
	}
}
