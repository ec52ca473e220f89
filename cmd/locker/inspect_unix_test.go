//go:build unix

package main_test

import (
	"encoding/json"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// answer is what inspect --json says.
type answer struct {
	Name      string  `json:"name"`
	Held      bool    `json:"held"`
	Label     *string `json:"label"`
	Remaining *int64  `json:"remaining_ms"`
	Token     *uint64 `json:"token"`
	Waiters   *int    `json:"waiters"`
}

func inspectJSON(t *testing.T, backend with) (s answer) {
	t.Helper()
	r := do(t, []with{backend}, "inspect", "a", "--json")
	require.Equal(t, 0, r.status, r.stderr)
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &s))
	return s
}

func TestInspect(t *testing.T) {
	t.Run("file", func(t *testing.T) { testInspect(t, fileBackend(t), false) })
	t.Run("redis", func(t *testing.T) { testInspect(t, startService(t).direct(), true) })
}

func testInspect(t *testing.T, backend with, expires bool) {
	assert.Equal(t, result{0, `"a": free`, ""}, do(t, []with{backend}, "inspect", "a"))
	assert.False(t, inspectJSON(t, backend).Held)

	p := start(t, []with{backend}, "run", "--ttl", "20s", "a", "--", "sh", "-c",
		"echo token $LOCKER_TOKEN; exec sleep 60")
	token := p.expect("token")
	r := do(t, []with{backend}, "inspect", "a")
	assert.Equal(t, 0, r.status)
	assert.Regexp(t, `^"a": held by sh@.*\[`+strconv.Itoa(p.cmd.Process.Pid)+`\].*, token `+token+`$`,
		r.stdout)

	s := inspectJSON(t, backend)
	assert.True(t, s.Held)
	assert.Equal(t, "a", s.Name)
	require.NotNil(t, s.Label)
	assert.Contains(t, *s.Label, "sh@")
	require.NotNil(t, s.Token)
	assert.Equal(t, token, strconv.FormatUint(*s.Token, 10))
	assert.Equal(t, expires, s.Remaining != nil)
	if expires {
		assert.InDelta(t, 20_000, *s.Remaining, 10_000)
	}
	p.signal(syscall.SIGTERM)
	p.wait()
	assert.False(t, inspectJSON(t, backend).Held)
}
