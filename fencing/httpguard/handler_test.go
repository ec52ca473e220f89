package httpguard_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/httpguard"
)

func TestWhatIsRefusedAndHow(t *testing.T) {
	const invalid = "has no type"
	for name, c := range map[string]struct {
		method string
		tokens []string
		status int
		kind   string
	}{
		"none":                 {"PUT", nil, 428, httpguard.TypeMissing},
		"empty":                {"PUT", []string{""}, 428, httpguard.TypeMissing},
		"zero":                 {"PUT", []string{"0"}, 428, httpguard.TypeMissing},
		"method in small":      {"get", nil, 428, httpguard.TypeMissing},
		"unknown method":       {"PURGE", nil, 428, httpguard.TypeMissing},
		"stale":                {"PUT", []string{"9"}, 412, httpguard.TypeStale},
		"a word":               {"PUT", []string{"ten"}, 400, invalid},
		"a sign":               {"PUT", []string{"+11"}, 400, invalid},
		"hexadecimal":          {"PUT", []string{"0x11"}, 400, invalid},
		"too large":            {"PUT", []string{"18446744073709551616"}, 400, invalid},
		"a list":               {"PUT", []string{"11, 12"}, 400, invalid},
		"twice":                {"PUT", []string{"11", "11"}, 400, invalid},
		"twice, one is stale":  {"PUT", []string{"9", "11"}, 400, invalid},
		"a word where safe":    {"GET", []string{"ten"}, 400, invalid},
		"twice where it's not": {"GET", []string{"11", "12"}, 400, invalid},
	} {
		t.Run(name, func(t *testing.T) {
			var guard fencing.Guard
			require.NoError(t, guard.Do(t.Context(), "/thing", 10, nil))
			h := httpguard.Handler(unreached(t), path, &httpguard.Options{Guard: &guard})
			w := handle(t, h, c.method, c.tokens...)
			assert.Equal(t, c.status, w.Code)
			p := fields(t, w)
			if c.kind == invalid {
				assert.NotContains(t, p, "type")
			} else {
				assert.Equal(t, c.kind, p["type"])
				assert.Equal(t, "/thing", p["resource"])
			}
			if c.status == 412 {
				assert.Equal(t, "9", p["token"], "a string: it has up to 64 bits")
				assert.Equal(t, "10", p["mark"])
			} else {
				assert.NotContains(t, p, "token")
				assert.NotContains(t, p, "mark")
			}
			assert.Equal(t, fencing.Token(10), markOf(&guard))
		})
	}
}

func TestSafeMethodsPass(t *testing.T) {
	var guard fencing.Guard
	require.NoError(t, guard.Do(t.Context(), "/thing", 10, nil))
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE"} {
		for want, tokens := range map[fencing.Token][]string{0: nil, 9: {"9"}, 11: {"11"}} {
			called := false
			h := httpguard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				called = true
				got, _ := fencing.FromContext(r.Context())
				assert.Equal(t, want, got)
			}), path, &httpguard.Options{Guard: &guard})
			assert.Equal(t, 200, handle(t, h, method, tokens...).Code)
			assert.True(t, called)
		}
	}
	assert.Equal(t, fencing.Token(10), markOf(&guard), "a read moves no mark")
}

func TestWithoutAGuardTheTokenIsOnlyCarried(t *testing.T) {
	var got []fencing.Token
	h := httpguard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		token, err := fencing.FromContext(r.Context())
		assert.NoError(t, err)
		got = append(got, token)
	}), path, nil)
	assert.Equal(t, 200, handle(t, h, "PUT", "9").Code)
	assert.Equal(t, 200, handle(t, h, "PUT", "7").Code)
	assert.Equal(t, 428, handle(t, h, "PUT").Code)
	assert.Equal(t, 400, handle(t, h, "PUT", "x").Code)
	assert.Equal(t, []fencing.Token{9, 7}, got)
}

func TestTheNameOfTheResourceIsNeeded(t *testing.T) {
	next := unreached(t)
	for _, opts := range []*httpguard.Options{nil, {Guard: &fencing.Guard{}}} {
		for _, name := range []string{"", strings.Repeat("a", fencing.MaxNameLen+1)} {
			h := httpguard.Handler(next, func(*http.Request) string { return name }, opts)
			w := handle(t, h, "PUT", "1")
			assert.Equal(t, 500, w.Code)
			fields(t, w)
		}
	}
	assert.Panics(t, func() { httpguard.Handler(next, nil, nil) })
	assert.Panics(t, func() { httpguard.Handler(nil, path, nil) })
}

func TestTheMarkMovesWhateverTheHandlerAnswers(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"404":     http.NotFound,
		"500":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"a panic": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			var guard fencing.Guard
			s := serve(t, &httpguard.Options{Guard: &guard}, answer)
			_, _ = send(t, newClient(t), "PUT", s.URL+"/thing", 5, "")
			assert.Equal(t, fencing.Token(5), markOf(&guard))
		})
	}
}
