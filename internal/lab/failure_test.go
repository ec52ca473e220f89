package lab_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

func TestRedisThatDoesNotStartFailsTheTestAndShowsItsLog(t *testing.T) {
	lab.Need(t, lab.ToolRedis)
	begin := time.Now()
	r := record(t, func(t lab.TB) { lab.StartRedis(t, lab.WithConfig("no-such-directive", "x")) })
	assert.True(t, r.Failed())
	assert.Contains(t, r.said(), "ended instead of getting ready")
	assert.Contains(t, r.said(), "no-such-directive", "the log tells why")
	assert.Less(t, time.Since(begin), lab.Patience, "nobody waits for a dead server")
}

func TestRedisShowsItsLogOnlyWhenTheTestFails(t *testing.T) {
	lab.Need(t, lab.ToolRedis)
	var server *lab.Redis
	r := record(t, func(t lab.TB) { server = lab.StartRedis(t) })
	assert.Empty(t, r.said())
	assert.False(t, server.Running(), "it ends with its test")
	r = record(t, func(t lab.TB) {
		lab.StartRedis(t)
		t.Errorf("something")
	})
	assert.Contains(t, r.said(), "Ready to accept connections")
}

func TestProcessThatIsGoneCannotBePaused(t *testing.T) {
	lab.Need(t, lab.ToolRedis)
	r := record(t, func(t lab.TB) {
		server := lab.StartRedis(t)
		server.Kill()
		server.Pause()
		server.Resume()
	})
	assert.Contains(t, r.said(), "cannot pause redis: it is not running")
	assert.Contains(t, r.said(), "cannot resume redis: it is not running")
}

// Two test packages may choose the same port at the same time. Here somebody else's server gets it
// between the choice and the bind, and answers there.
func TestRedisTakesAnotherPortWhenItsOwnWasTaken(t *testing.T) {
	real := lab.Need(t, lab.ToolRedis)
	dir := t.TempDir()
	script := filepath.Join(dir, "redis-server")
	require.NoError(t, os.WriteFile(script, []byte(`#!/bin/sh
if [ ! -e `+dir+`/pid ]; then
	port=$(sed -n 's/^port "\(.*\)"/\1/p' "$1")
	`+real+` --port $port --bind 127.0.0.1 --save '' --dir `+dir+` >`+dir+`/log 2>&1 &
	echo $! $port >`+dir+`/pid
	while ! grep -q 'Ready to accept' `+dir+`/log; do sleep 0.01; done
	sleep 0.1
fi
exec `+real+` "$@"
`), 0o700))
	t.Setenv(lab.ToolEnv(lab.ToolRedis), script)
	t.Cleanup(func() {
		text, err := os.ReadFile(filepath.Join(dir, "pid"))
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.Fields(string(text))[0])
		require.NoError(t, err)
		other, err := os.FindProcess(pid)
		require.NoError(t, err)
		_ = other.Kill()
	})

	r := lab.StartRedis(t)
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	require.NoError(t, err)
	taken := strings.Fields(string(text))[1]
	assert.NotEqual(t, taken, strconv.Itoa(r.Port()))
	assert.Equal(t, fmt.Sprint(r.Pid()), r.Info(t, "server")["process_id"])
}

// On a busy machine a server is slow; one that says nothing any more hangs.
func TestAServerThatMakesProgressIsWaitedFor(t *testing.T) {
	for says, want := range map[int]time.Duration{0: lab.Patience, 2: 2 * lab.Patience, 5: 3 * lab.Patience} {
		synctest.Test(t, func(t *testing.T) {
			log, err := os.Create(filepath.Join(t.TempDir(), "log"))
			require.NoError(t, err)
			began := time.Now()
			go func() {
				for range says {
					time.Sleep(lab.Patience / 4 * 3)
					_, _ = log.WriteString("a line\n")
				}
			}()
			err = lab.Poll(func() error {
				if says == 2 && time.Since(began) > want {
					return nil
				}
				return errors.New("not up")
			}, log)
			assert.InDelta(t, want.Seconds(), time.Since(began).Seconds(), 1)
			if says == 2 {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "silence: not up")
			}
			if says == 5 {
				assert.Contains(t, err.Error(), "said last:\na line\na line")
			}
			time.Sleep(2 * lab.Patience) // it has said all
			_ = log.Close()
		})
	}
}

func TestRedisRestartWaitsForItsPort(t *testing.T) {
	r := lab.StartRedis(t)
	r.Kill()
	other, err := listen(r.Addr())
	require.NoError(t, err)
	go func() {
		for !strings.Contains(strings.ToLower(r.Log()), "address already in use") {
			time.Sleep(5 * time.Millisecond)
		}
		_ = other.Close()
	}()
	r.Restart(t)
	assert.Equal(t, "PONG", r.MustDo(t, "PING"))
}
