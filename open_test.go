package locker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
)

// openers serve fake:// from f, which knows the parameters nodes and peer.
func openers(f *scripted) driver.Openers {
	return driver.Openers{
		"fake": func(_ context.Context, u *driver.URL, _ driver.Settings) (driver.Backend, error) {
			u.Uint("nodes", 1)
			u.Bool("guard", true)
			u.Param("peer", "")
			return f, u.Check()
		},
		"silent": func(ctx context.Context, _ *driver.URL, _ driver.Settings) (driver.Backend, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"broken": func(context.Context, *driver.URL, driver.Settings) (driver.Backend, error) {
			return nil, errDown
		},
	}
}

func TestOpenReadsTheCommonParameters(t *testing.T) {
	for timeout, want := range map[string]time.Duration{"none": 0, "4s": 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := newScripted()
			c, err := locker.Open(t.Context(),
				"fake://?ttl=2s&max_hold=1m&prefix=p%2F&label=me&token_base=40&nodes=3&peer=a&outage_timeout="+timeout,
				&locker.Options{TTL: time.Minute, Prefix: "overruled", OutageTimeout: time.Hour}, openers(f))
			require.NoError(t, err)
			l := locktest.Lock(t, c, "job")
			var req driver.Request
			require.True(t, l.As(&req))
			assert.Equal(t, "p/job", req.Name)
			assert.Equal(t, "me", req.Label)
			assert.Equal(t, 2*time.Second, req.TTL)
			token, _ := l.Token()
			assert.EqualValues(t, 41, token)
			assert.Less(t, time.Until(l.Until()), 2*time.Second)
			f.script("acquire", "down")
			began := time.Now()
			_, err = c.Lock(t.Context(), "other")
			require.ErrorIs(t, err, locker.ErrUnavailable)
			assert.Equal(t, want, time.Since(began), "outage_timeout=%s", timeout)
			time.Sleep(time.Minute - want)
			assert.ErrorContains(t, l.Err(), "MaxHold of 1m0s is reached")
			require.NoError(t, c.Close())
			assert.Equal(t, 1, f.count("close"), "what Open made, Close ends")
		})
	}
}

func TestOpenRefusesWhatItDoesNotKnow(t *testing.T) {
	for url, want := range map[string]string{
		"":                                      "it has no scheme",
		"user:xyzzy@localhost:6379":             "it has no scheme",
		"nosuch://user:xyzzy@host":              `no backend for scheme "nosuch": use one of broken, fake`,
		"fake://user:xyzzy@h?tll=3s":            `unknown parameter, number 1: the known ones are guard, label, max_hold, nodes, outage_timeout, peer, prefix, token_base, ttl`,
		"fake://user:xyzzy@h?ttl=3s&ttl=4s":     `parameter "ttl" is given 2 times`,
		"fake://user:xyzzy@h?ttl=":              "it has no value",
		"fake://user:xyzzy@h?ttl=3":             "write a duration such as 500ms, 30s, 1h30m or 30d",
		"fake://user:xyzzy@h?ttl=-3s":           "more than zero",
		"fake://user:xyzzy@h?ttl=0s":            "more than zero",
		"fake://user:xyzzy@h?ttl=500us":         "Options.TTL is 500µs",
		"fake://user:xyzzy@h?ttl=2500000h":      "Options.TTL is 2500000h0m0s", // 285 years
		"fake://user:xyzzy@h?ttl=2628000h":      "write a duration",            // 300 years
		"fake://user:xyzzy@h?ttl=x":             "write a duration",
		"fake://user:xyzzy@h?ttl=2h":            "from 100ms to 1h0m0s",
		"fake://user:xyzzy@h?outage_timeout=0s": "more than zero, or none",
		"fake://user:xyzzy@h?token_base=-1":     "whole number of zero or more",
		"fake://user:xyzzy@h?nodes=x":           "whole number of zero or more",
		"fake://user:xyzzy@h?guard=maybe":       "write on or off",
		"fake://user:xyzzy@h/%zz":               "two hexadecimal digits",
		"fake://user:xyzzy@h?a=%zz":             "not of the form a=1&b=2",
		"fake://user:xyzzy@h?prefix=zzy+":       "has a + in a parameter: write %2B for a plus, or %20 for a space",
		"fake://user:xyzzy@h?p+q=a":             "has a + in a parameter",
		"fake://user:xyzzy@h#part":              "no fragment",
		"fake://user:xyzzy@h:x":                 "not a number from 1 to 65535",
		"fake://user:xyzzy@h:70000":             "not a number from 1 to 65535",
		"fake://user:xyzzy@h:":                  "the port is missing",
		"fake://user:xyzzy@[::1]:":              "the port is missing",
		"fake://::1":                            "IPv6 address in brackets",
		"fake://[::1":                           "write an IPv6 address as [::1]",
		"fake://user:xyzzy@a,,b":                "host 2 of the fake:// URL: it is empty",
		"fake://user:xyzzy@a b":                 "character 20 is a space",
		"fake://user:xyzzy@h?Tll=3s":            `unknown parameter, number 1: the known ones are guard, label`,
		"fake://user:xyzzy@h?4hush=1":           "unknown parameter, number 1: the known ones are guard, label",
		"fake://user:xyzzy@h?hush":              "unknown parameter, number 1: the known ones are guard, label",
		"broken://user:xyzzy@host:1/x?nodes":    "connection refused",
		// Parts of a password that look like something else.
		"fake://host?sentinel_password=xy&zzy=1": "unknown parameter, number 1",
		"fake://host?auth=digest:user:xy&zzy=1":  "unknown parameter, number 1",
		"fake://user:1?zzy=1@host":               "has an @ after the host",
		"fake://user:xyzzy%zz@host":              "escape what is special",
		"fake://user:p/xyzzy@host":               "not a number from 1 to 65535",
		"fake://user:1/xyzzy@host":               "has an @ after the host",
		"fake://user:?xyzzy@host":                "the port is missing",
		"fake://user:#xyzzy@host":                "no fragment",
		"fake://user:xy@zzy@host:x":              "escape what is special",
	} {
		t.Run(url, func(t *testing.T) {
			f := newScripted()
			c, err := locker.Open(t.Context(), url, nil, openers(f))
			require.Error(t, err)
			assert.Nil(t, c)
			assert.ErrorContains(t, err, want)
			assert.NotContains(t, err.Error(), "\n")
			assert.NotContains(t, err.Error(), "zzy")
		})
	}
}

// The line end of a secret's file is not a part of a prefix or a directory: two programs,
// of which one has it, would both hold.
func TestWhiteSpaceAndControlCharactersAreRefused(t *testing.T) {
	for what, want := range map[string]string{
		"\n": "a line end (U+000A)", "\r": "a line end (U+000D)", "\r\n": "a line end (U+000",
		" ": "a space (U+0020)", "\t": "a control character (U+0009)", "\x00": "a control character (U+0000)",
		"\u00a0": "an invisible character (U+00A0)", "\u200b": "an invisible character (U+200B)",
		"\ufeff": "an invisible character (U+FEFF)",
	} {
		for _, url := range []string{
			"fake://user:zzy@h" + what, "fake://user:zzy@h/1" + what,
			"fake://user:zzy@h/1?prefix=p" + what, "fake://user:zzy@h/1?prefix=p" + what + "q",
			what + "fake://user:zzy@h", "fake://user:z" + what + "zy@h", "fake://h/x" + what + "y",
		} {
			f := newScripted()
			_, err := locker.Open(t.Context(), url, nil, openers(f))
			require.ErrorIs(t, err, locker.ErrInvalid, "%q", url)
			assert.ErrorContains(t, err, want, "%q", url)
			assert.NotContains(t, err.Error(), "zy", "%q", url)
		}
	}
	for _, url := range []string{"fake://h/a%0A", "fake://h/a%00b", "fake://h?prefix=p%0D",
		"fake://h?peer=a%00", "fake://h?peer=a&peer=b%0A"} {
		_, err := locker.Open(t.Context(), url, nil, openers(newScripted()))
		require.ErrorIs(t, err, locker.ErrInvalid, url)
		assert.ErrorContains(t, err, "a control character or line end", url)
	}
	c, err := locker.Open(t.Context(), "fake://us%20er:pass%0Aword@h/a%20b?prefix=p%20q%20", nil, openers(newScripted()))
	require.NoError(t, err, "white space that is escaped is meant")
	assert.NoError(t, c.Close())
	_, err = driver.ParseURL("file:///home/me@work")
	assert.NoError(t, err, "no password can be in a path without a host")
	_, err = driver.ParseURL("redis://user:word@h1,user:word@h2")
	assert.ErrorContains(t, err, "escape what is special", "it is one user for all hosts")
}

func TestAServiceThatDoesNotAnswerInTimeIsUnavailable(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := locker.Open(ctx, "silent://", nil, openers(newScripted()))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, locker.ErrUnavailable)
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	_, err = locker.Open(ctx, "silent://", nil, openers(newScripted()))
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, locker.ErrUnavailable)
}

// What nobody asked for is wrong also where the Opener does not look; what it has made is closed.
func TestAnOpenerThatDoesNotCheckItsURL(t *testing.T) {
	s := newScripted()
	s.script("close", "down")
	_, err := locker.Open(t.Context(), "x://?nonsense=1&ttl=2h", nil, driver.Openers{
		"x": func(context.Context, *driver.URL, driver.Settings) (driver.Backend, error) { return s, nil },
	})
	require.ErrorIs(t, err, locker.ErrInvalid)
	for _, part := range []string{"unknown parameter", "; ", "from 100ms to 1h0m0s", "; connection refused"} {
		assert.ErrorContains(t, err, part)
	}
	assert.NotContains(t, err.Error(), "\n", "a log has one line for each error")
	assert.Equal(t, 1, s.count("close"))
}

func TestAURLIsParsed(t *testing.T) {
	u, err := driver.ParseURL("fake://us%40er:xy%40zzy@h1:1,[::1]:2,h3/a%20b/c?x=y")
	require.NoError(t, err)
	assert.Equal(t, "fake://***@h1:1,[::1]:2,h3/a%20b/c", u.String())
	assert.Equal(t, []string{"h1:1", "[::1]:2", "h3"}, u.Hosts)
	assert.Equal(t, "/a b/c", u.Path)
	password, _ := u.User.Password()
	assert.Equal(t, "xy@zzy", password)
}

// claiming is a backend that promises just this.
type claiming struct {
	driver.Backend
	guarantees locker.Guarantees
}

func (b claiming) Guarantees() locker.Guarantees { return b.guarantees }

func TestRequire(t *testing.T) {
	claims := locker.Guarantees{Backend: "some", Scope: locker.ScopeProcess, Exclusion: locker.ExclusionServer,
		MinTTL: 100 * time.Millisecond, MaxTTL: time.Hour, DeadHolderSlack: time.Minute}
	c := locktest.Must(locker.New(claiming{guarantees: claims}, nil))
	require.NoError(t, locker.Require(c, locker.Guarantees{}))
	require.ErrorIs(t, locker.Require(c, locker.Guarantees{Exclusion: locker.ExclusionServer}),
		locker.ErrInvalid, "an Exclusion within no Scope")
	require.NoError(t, locker.Require(c, locker.Guarantees{Scope: locker.ScopeProcess, MinTTL: time.Second,
		MaxTTL: time.Minute}))
	err := locker.Require(c, locker.Guarantees{
		Scope: locker.ScopeNetwork, Exclusion: locker.ExclusionConsensus, Fencing: locker.FencingWhileKept,
		Order: locker.OrderFIFO, DeadHolder: locker.RecoveryAtOnce, ServerCrashes: 1, SurvivesRestart: true,
		SurvivesFailover: true, SurvivesClockJump: true, SurvivesPause: true,
		MinTTL: time.Millisecond, MaxTTL: 2 * time.Hour,
	})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	for _, field := range []string{"Scope: want network, have process",
		"Exclusion: want consensus, have one server", "Fencing: want while data is kept, have none",
		"Order: want fifo, have none", "DeadHolder: want at once, have none", "ServerCrashes: want 1, have 0",
		"SurvivesRestart", "SurvivesFailover", "SurvivesClockJump", "SurvivesPause",
		"MinTTL: want 1ms, have 100ms", "MaxTTL: want 2h0m0s, have 1h0m0s"} {
		assert.ErrorContains(t, err, field)
	}
	assert.ErrorContains(t, locker.Require(c, locker.Guarantees{DeadHolderSlack: time.Second}),
		"DeadHolderSlack: want 1s, have 1m0s")
}
