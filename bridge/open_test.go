package bridge_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/bridge"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/file"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/memlock"
	"github.com/golockers/locker/memory"
)

func TestTwoURLs(t *testing.T) {
	dir := "file://" + t.TempDir()
	for url, want := range map[string]string{
		"memory:// memory:// memory://": "it has 3 parts",
		"memory:// nosuch://":           `no backend for scheme "nosuch"`,

		"bridge://a":                                 `no backend for scheme "bridge"`,
		"memory://?ttl=10s memory://?ttl=20s":        "parameter ttl: the two URLs differ in it",
		"memory://?nosuch=1 " + dir:                  `memory://: unknown parameter, number 1`,
		dir + " memory://?nosuch=1":                  `memory://: unknown parameter, number 1`,
		dir + " memory://?prefix=a&prefix=b":         `parameter "prefix" is given 2 times`,
		"memory:// long://:zzy@127.0.0.1:1?ttl=20ms": "long://***@127.0.0.1:1",
		dir + " file://?ttl=0s":                      "it must be more than zero",

		// White space that was not meant is refused beside two URLs as beside one.
		"memory://a memory://user:zzy@b\n":      "URL 2 of 2: invalid argument: backend URL: character 20 is a line end",
		"memory://a\nmemory://user:zzy@b\u00a0": "an invisible character (U+00A0)",
		" memory://user:zzy@a memory://a":       "URL 1 of 2: invalid argument: backend URL: character 1 is a space",
		"memory://a \u200bmemory://user:zzy@b":  "an invisible character (U+200B)",
		"memory://a\x00 memory://user:zzy@b":    "a control character (U+0000)",
		"memory:// user:zzy@b":                  "character 10 is a space",
	} {
		c, err := bridge.Open(t.Context(), url, nil, memory.Openers, file.Openers,
			driver.Openers{"long": opens(limited(time.Minute, time.Hour))})
		if !assert.Error(t, err, "%q", url) {
			_ = c.Close()
			continue
		}
		assert.ErrorContains(t, err, want, "%q", url)
		assert.NotContains(t, err.Error(), "zy")
	}
	_, err := locker.Open(t.Context(), "memory:// memory://", nil, memory.Openers)
	require.ErrorContains(t, err, "package bridge takes two URLs")
	urls, err := bridge.ParseURLs("redis://user:zzy@a?ttl=1s \r\n\t etcd://b/c")
	require.NoError(t, err)
	assert.Equal(t, "redis://***@a etcd://b/c", urls.String())
	assert.Equal(t, "1s", urls.Param("ttl"))
	assert.Empty(t, urls.Param("label"))
}

// Options and the parameters that are written once hold for both, also where a backend
// needs them to connect; a prefix and a token_base belong to their own URL.
func TestWhatTheOpenersOfTwoURLsAreGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		given, services := map[string]driver.Settings{}, map[string]*memlock.Backend{}
		open := func(_ context.Context, u *driver.URL, opts driver.Settings) (driver.Backend, error) {
			given[u.Scheme], services[u.Scheme] = opts, memlock.New(true)
			return services[u.Scheme], u.Check()
		}
		c, err := bridge.Open(t.Context(),
			"old://?prefix=a%2F&outage_timeout=none\t young://?token_base=7&ttl=9s&label=me",
			&locker.Options{TTL: time.Minute, Prefix: "p/", TokenBase: 5, MaxHold: time.Hour}, driver.Openers{"old": open, "young": open})
		require.NoError(t, err)
		defer func() { assert.NoError(t, c.Close()) }()
		both := driver.Settings{TTL: 9 * time.Second}
		old, young := both, both
		old.Prefix, old.TokenBase = "a/", 5
		young.Prefix, young.TokenBase = "p/", 7
		assert.Equal(t, map[string]driver.Settings{"old": old, "young": young}, given)
		l := try(t, c, "job")
		assert.Greater(t, time.Until(l.Until()), 8*time.Second)
		assert.Less(t, time.Until(l.Until()), 9*time.Second)
		token, _ := l.Token()
		assert.EqualValues(t, 8, token, "the first one's is raised")
		for scheme, name := range map[string]string{"old": "a/job", "young": "p/job"} {
			st, err := services[scheme].Inspect(t.Context(), name)
			require.NoError(t, err)
			assert.Equal(t, "me [old:// young://]", st.Label)
		}
		unlock(t, l)
	})
}

// Of several Openers with one scheme the first counts, with two URLs as with one.
func TestTheFirstOpenerOfASchemeCounts(t *testing.T) {
	first := driver.Openers{"a": opens(memlock.New(true)), "b": opens(memlock.New(true)), "c": nil}
	second := driver.Openers{"a": refuses, "b": refuses, "c": opens(memlock.New(true))}
	for _, urls := range []string{"a://", "c://", "a:// b://", "c:// b://"} {
		c, err := bridge.Open(t.Context(), urls, nil, first, second)
		require.NoError(t, err, urls)
		require.NoError(t, c.Close())
	}
}

func refuses(context.Context, *driver.URL, driver.Settings) (driver.Backend, error) {
	return nil, locker.ErrUnavailable
}

// What is opened before something else fails is closed again.
func TestTheFirstIsClosedIfTheSecondFails(t *testing.T) {
	for second, want := range map[string]string{
		"nosuch://":   `no backend for scheme "nosuch"`,
		"broken://":   "the lock service is unavailable",
		"long://host": "long://host: invalid argument: a TTL of 10s is outside",
		"pair://":     "is a bridge itself",
	} {
		first := memlock.New(false)
		pair := locktest.Must(bridge.New(memlock.New(false), memlock.New(false)))
		_, err := bridge.Open(t.Context(), "first://?ttl=10s "+second, nil, driver.Openers{
			"first": opens(first),
			"long":  opens(limited(time.Minute, time.Hour)),
			"pair":  opens(pair),
			"broken": func(context.Context, *driver.URL, driver.Settings) (driver.Backend, error) {
				return nil, locker.ErrUnavailable
			},
		})
		require.ErrorContains(t, err, want)
		assert.Equal(t, 1, strings.Count(err.Error(), "locker: "), err)
		_, err = first.Acquire(t.Context(), driver.Request{})
		assert.ErrorIs(t, err, locker.ErrClosed, second)
	}
}
