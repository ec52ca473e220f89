package compare

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/compare/internal/history"
)

// starving is a server whose threads wait for a processor.
type starving struct {
	server
	looks atomic.Int64
	each  time.Duration // for so long between two looks
}

func (*starving) Pid() int { return 17 }

func (s *starving) Waits() map[int]time.Duration {
	return map[int]time.Duration{1: time.Duration(s.looks.Add(1)) * s.each, 2: time.Hour}
}

// What is told of a server is how long its worst thread had to wait since the look before, if that is long.
func TestServersThatWaitForAProcessor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, err := history.Create(filepath.Join(dir, "parent.jsonl"))
	require.NoError(t, err)
	busy, idle := &starving{each: 40 * time.Millisecond}, &starving{each: time.Millisecond}
	stop := watchServers(j, "redis", []server{busy, idle})
	require.Eventually(t, func() bool { return busy.looks.Load() > 3 }, time.Minute, time.Millisecond)
	stop()
	require.NoError(t, j.Close())
	n := int64(0)
	for e, err := range history.Read(dir) {
		require.NoError(t, err)
		e.At = 0
		assert.Equal(t, history.Event{Kind: history.Starved, Service: "redis", Process: "17", Value: 40e6}, e)
		n++
	}
	assert.Equal(t, busy.looks.Load()-1, n)
}
