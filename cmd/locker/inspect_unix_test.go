//go:build unix

package main_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// answer is what inspect --json says.
type answer struct {
	Name      string
	Held      bool
	Label     string
	Remaining int64 `json:"remaining_ms"`
	Token     uint64
	Waiters   *int
	Sharers   int
	Sharing   []string
}

// answers are those of a command that is given --json.
func answers(t *testing.T, backend []with, args ...string) (all []answer) {
	t.Helper()
	r := do(t, backend, append(args, "--json")...)
	require.Equal(t, 0, r.status, r.stderr)
	for in := json.NewDecoder(strings.NewReader(r.stdout)); in.More(); {
		var one answer
		require.NoError(t, in.Decode(&one))
		all = append(all, one)
	}
	return all
}

func TestInspect(t *testing.T) {
	for service, expires := range map[string]bool{"file": false, "redis": true} {
		t.Run(service, func(t *testing.T) {
			backend := []with{withEnv("LOCKER_BACKEND=" + services[service](t))}
			assert.Equal(t, result{0, `"a": free`, ""}, do(t, backend, "inspect", "a"))

			p := start(t, backend, "run", "--ttl", "20s", "a", "--", "sh", "-c",
				"echo token $LOCKER_TOKEN; exec sleep 60")
			token := p.expect("token")
			r := do(t, backend, "inspect", "a")
			assert.Equal(t, 0, r.status)
			assert.Regexp(t, `^"a": held by sh@.*\[`+strconv.Itoa(p.cmd.Process.Pid)+`\].*, token `+token+`$`,
				r.stdout)
			both := answers(t, backend, "inspect", "a", "b")
			require.Len(t, both, 2)
			assert.Equal(t, answer{Name: "b", Waiters: both[1].Waiters}, both[1])
			s := both[0]
			assert.True(t, s.Held)
			assert.Equal(t, "a", s.Name)
			assert.Contains(t, s.Label, "sh@")
			assert.Equal(t, token, strconv.FormatUint(s.Token, 10))
			assert.Equal(t, expires, s.Remaining != 0)
			if expires {
				assert.InDelta(t, 20_000, s.Remaining, 10_000)
			}
			p.signal(syscall.SIGTERM)
			p.wait()
			assert.False(t, answers(t, backend, "inspect", "a")[0].Held)
		})
	}
}
