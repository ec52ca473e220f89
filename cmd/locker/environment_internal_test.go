package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
)

// tokenless is a backend that grants everything and has no tokens.
type tokenless struct{}

func (tokenless) Acquire(context.Context, locker.Request) (locker.Grant, error) {
	return locker.Grant{Hold: tokenless{}, Validity: locker.Validity{Since: time.Now()}}, nil
}
func (tokenless) Guarantees() locker.Guarantees { return locker.Guarantees{} }
func (tokenless) Close() error                  { return nil }
func (tokenless) Release(context.Context) error { return nil }
func (tokenless) Renew(context.Context) (locker.Validity, error) {
	return locker.Validity{Since: time.Now()}, nil
}

func TestTokenOfAnotherLockIsNotHandedDown(t *testing.T) {
	t.Setenv(tokenEnv, "12")
	t.Setenv(nameEnv, "outer")
	client := locker.New(tokenless{}, nil)
	defer client.Close()
	lease, err := client.Lock(t.Context(), "a")
	require.NoError(t, err)
	env := environment(lease, "backup")
	isToken := func(v string) bool { return strings.HasPrefix(v, tokenEnv+"=") }
	assert.False(t, slices.ContainsFunc(env, isToken))
	assert.Contains(t, env, "LOCKER_NAME=a")
	assert.NotContains(t, env, "LOCKER_NAME=outer")
}

func TestLabelIsWithinItsLimits(t *testing.T) {
	for _, command := range []string{
		"backup", "/usr/bin/backup", "a\x1b[2Jb", "\xff", strings.Repeat("ü", 100), strings.Repeat("x", 200),
	} {
		l := label(command)
		assert.LessOrEqual(t, len(l), locker.MaxLabelLen)
		c := locker.New(tokenless{}, &locker.Options{Label: l})
		_, err := c.TryLock(t.Context(), "a")
		assert.NoError(t, err, "the engine takes %q", l)
		assert.NoError(t, c.Close())
	}
	assert.Regexp(t, `^backup@.+\[\d+\]$`, label("/usr/bin/backup"))
}
