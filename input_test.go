package locker_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/memlock"
)

func TestOptionsHaveBounds(t *testing.T) {
	play(t, map[string]string{
		"of a TTL": `
			a locks ttl 0s: invalid unsupported "from 100ms to 1h0m0s"
			a tries ttl 2000000h: invalid unsupported "to 1h0m0s"
			a tries ttl 500us: invalid unsupported "a TTL of 500µs is outside the bounds of backend scripted"`,
		"of a MaxHold": `
			a locks maxhold 0s: invalid "leave it out for no bound"
			a tries maxhold -1s: invalid "at least 10ms"
			a tries maxhold 1ms: invalid "at least 10ms"; count acquire 0`,
		"of a MinHold": `
			a tries minhold -1s: invalid; a tries minhold 10000h: invalid unsupported
			a tries minhold 1m maxhold 30s: invalid; count acquire 0`,
	})
}

func TestBadInput(t *testing.T) {
	f := newScripted()
	c := locktest.Client(t, f, nil)
	for name, want := range map[string]string{"": "the name is empty",
		strings.Repeat("x", 513): "513 bytes: the limit is 512",
		"a\xff":                  "not valid UTF-8"} {
		_, err := c.Lock(t.Context(), name)
		require.ErrorIs(t, err, locker.ErrInvalid)
		assert.ErrorContains(t, err, want)
	}
	for _, wrong := range []string{strings.Repeat("l", 129), "a\nb", "\xff"} {
		_, err := c.TryLock(t.Context(), "a", locker.Label(wrong))
		require.ErrorIs(t, err, locker.ErrInvalid)
	}
	for want, o := range map[string]locker.Options{
		"Options.TTL is -1s":        {TTL: -time.Second},
		"Options.MaxHold is -1s":    {MaxHold: -time.Second},
		"Options.Prefix has 129":    {Prefix: strings.Repeat("p", 129)},
		"Options.Prefix \"\\xff\"":  {Prefix: "\xff"},
		"Options.Label has 129":     {Label: strings.Repeat("l", 129)},
		"cannot be printed":         {Label: "a\nb"},
		"a TTL of 2h0m0s is outsid": {TTL: 2 * time.Hour},
		"so that no token overflow": {TokenBase: locker.MaxToken + 1},
	} {
		_, err := locker.New(f, &o)
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "locker: new: ")
		assert.ErrorIs(t, err, locker.ErrInvalid)
	}
	_, err := locker.New(nil, nil)
	assert.ErrorContains(t, err, "the Backend is nil")
	_, all := locker.LockAll(t.Context(), nil, []string{"a"})
	for _, err := range []error{all, locker.Do(t.Context(), nil, "a", nil), locker.TryDo(t.Context(), nil, "a", nil),
		locker.DoAll(t.Context(), nil, []string{"a"}, nil), locker.DoAll(t.Context(), c, nil, nil)} {
		assert.ErrorIs(t, err, locker.ErrInvalid)
	}
	assert.False(t, f.held("a"), "nothing is left behind")
}

func TestTheDefaultTTLIsOneThatTheBackendCanDo(t *testing.T) {
	for want, g := range map[time.Duration]locker.Guarantees{
		10 * time.Second: {MaxTTL: 10 * time.Second}, time.Minute: {MinTTL: time.Minute}, locker.DefaultTTL: {},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := locktest.Client(t, claiming{memlock.New(true), g}, nil)
			l, err := c.TryLock(t.Context(), "job", nil)
			require.NoError(t, err)
			assert.Equal(t, want-driver.Drift(want), time.Until(l.Until()))
		})
	}
}
