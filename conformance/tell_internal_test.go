package conformance

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/memlock"
)

// careless grants what another has, and its Close always fails.
type careless struct{ *memlock.Backend }

func (careless) Close() error {
	time.Sleep(time.Microsecond) // as it takes time across a network
	return errors.New("it is closed")
}

func (c careless) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	time.Sleep(time.Microsecond)
	grant, err := c.Backend.Acquire(ctx, req)
	if grant.Refused != nil && !req.Wait {
		return driver.Grant{Hold: madeUp{req.TTL}, Validity: driver.Validity{Since: time.Now(), TTL: req.TTL}, Token: 1}, nil
	}
	return grant, err
}

type madeUp struct{ ttl time.Duration }

func (m madeUp) Renew(context.Context) (driver.Validity, error) {
	return driver.Validity{Since: time.Now(), TTL: m.ttl}, nil
}
func (madeUp) Release(context.Context, time.Duration) error { return nil }
func (madeUp) Undo(context.Context) error                   { return nil }

// An author is told each broken rule once, with what it takes to see why and to see it again, in either kind of time.
func TestWhatAnAuthorIsTold(t *testing.T) {
	t.Setenv(proveEnv, "")
	harness := func(T) Harness {
		service := memlock.New(true)
		return Harness{TTL: 100 * time.Millisecond, New: func(T) driver.Backend { return careless{service} }}
	}
	live := func(p plan) (found findings) {
		synctest.Test(t, func(t *testing.T) {
			found, _ = checkReal(t.Context(), harness(nil), p)
			time.Sleep(2 * time.Hour)
		})
		return found
	}
	virtual := func(p plan) findings { return checkVirtual(t, harness, p, 60, mostBroken) }
	p := plan{test: "TestX/histories", seed: 7, only: -1}
	for _, play := range []func(plan) findings{virtual, live} {
		told := p.tell(play(p))
		t.Log(told)
		assert.Regexp(t, `^[2-9] of 17 rules broken in \d+ scripts; fix them in this order:\n1\. broken promise: An exclusive holder`, told)
		for _, r := range rules {
			assert.LessOrEqual(t, strings.Count(told, "(rule "+r.name+")"), 1)
		}
		first, _, _ := strings.Cut(told, "\n2. ")
		assert.Regexp(t, `seen: (\w#\d+) was granted the lock at \+\S+, and (\w#\d+) has it from \+\S+ until \+.*, and so in \d+ scripts\n`+
			`  probable cause: it does not check whether the lock is held, or not in the step that takes it\n`+
			`(?s:.*)    \* .*Acquire \(\w#\d.*\n(?s:.*)    > .* Acquire \(\w#\d.*\n`+
			`  again: CONFORMANCE_SCRIPT='.*' go test -run '\^TestX\$/\^histories\$' \.`, first)
		assert.Less(t, strings.Count(first, "\n"), 13, "it is short")
		assert.Less(t, strings.Count(told, "\n"), 60, "all of it, too")
		assert.NotContains(t, told, "long after")

		script := regexp.MustCompile(`(?s)CONFORMANCE_SCRIPT='(.*?)'`).FindStringSubmatch(first)
		t.Setenv(ScriptEnv, script[1])
		again, err := planned(p.test, false)
		require.NoError(t, err)
		assert.LessOrEqual(t, len(again.steps), 3, "it is shortened")
		once := play(again)
		assert.Equal(t, "exclusion", once.all[0].rule(), "it is played again: %s", again.tell(once))
		assert.Equal(t, 1, once.scripts)
	}
	t.Setenv(ScriptEnv, "servers: restarted")
	p, err := planned(p.test, false)
	require.NoError(t, err)
	assert.Contains(t, p.tell(live(p)), "CONFORMANCE_SCRIPT: the harness has no hook for the server event: restarted")
	t.Setenv(ScriptEnv, "a sings")
	_, err = planned(p.test, false)
	require.EqualError(t, err, `CONFORMANCE_SCRIPT: step 1, "a sings": a client cannot do "sings"`)
}
