package httpguard_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/httpguard"
)

func TestWriteErrorWritesRefusalsOnly(t *testing.T) {
	for _, err := range []error{nil, errors.New("disk full"), io.EOF} {
		w := httptest.NewRecorder()
		assert.False(t, httpguard.WriteError(w, err))
		assert.False(t, w.Flushed)
		assert.Empty(t, w.Body.String())
		assert.Empty(t, w.Header())
	}

	w := httptest.NewRecorder()
	w.Header().Set("Content-Length", "3")
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Set("Etag", `"abc"`)
	w.Header().Set("Kept", "yes")
	stale := &fencing.StaleError{Resource: "row", Token: 3, Mark: 1 << 63}
	assert.True(t, httpguard.WriteError(w, fmt.Errorf("db.internal:5432 as admin: %w", stale)))
	assert.Equal(t, 412, w.Code)
	p := fields(t, w)
	assert.Equal(t, stale.Error(), p["detail"])
	assert.Equal(t, "9223372036854775808", p["mark"])
	assert.NotContains(t, w.Body.String(), "admin", "what is around the refusal is the server's own")
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag"} {
		assert.Empty(t, w.Header().Get(name))
	}
	assert.Equal(t, "yes", w.Header().Get("Kept"))

	w = httptest.NewRecorder()
	assert.True(t, httpguard.WriteError(w, fmt.Errorf("no numbers: %w", fencing.ErrStale)))
	assert.Equal(t, 412, w.Code)
	assert.Equal(t, httpguard.TypeStale, fields(t, w)["type"])
	err := httpguard.CheckResponse(w.Result()) //nolint:bodyclose // it is in memory
	require.ErrorIs(t, err, fencing.ErrStale)

	w = httptest.NewRecorder()
	assert.True(t, httpguard.WriteError(w, fmt.Errorf("around: %w", fencing.ErrMissing)))
	assert.Equal(t, 428, w.Code)
	assert.Equal(t, httpguard.TypeMissing, fields(t, w)["type"])
}

// A name that fills the 64 KiB which CheckResponse reads must not turn a refusal into no error.
func TestALongNameDoesNotHideARefusal(t *testing.T) {
	for what, name := range map[string]string{
		"long":                 strings.Repeat("a", 40_000),
		"escaped in JSON":      strings.Repeat("<", 6_000),
		"quoted and escaped":   strings.Repeat("\x01", 20_000),
		"runes of three bytes": "/" + strings.Repeat("日", 20_000),
		"runes of four bytes":  "/" + strings.Repeat("🔒", 20_000),
		"no UTF-8":             strings.Repeat("\x80", 40_000),
	} {
		t.Run(what, func(t *testing.T) {
			var guard fencing.Guard
			require.NoError(t, guard.Do(t.Context(), name, 10, nil))
			h := httpguard.Handler(http.NotFoundHandler(), func(*http.Request) string { return name },
				&httpguard.Options{Guard: &guard})

			w := handle(t, h, "PUT", "9")
			assert.Equal(t, 412, w.Code)
			assert.Less(t, w.Body.Len(), 32<<10)
			p := fields(t, w)
			assert.Contains(t, p["detail"], "it has seen 10", "what comes after the name is there")
			var stale *fencing.StaleError
			require.ErrorAs(t, httpguard.CheckResponse(w.Result()), &stale) //nolint:bodyclose // it is in memory
			assert.Equal(t, []fencing.Token{9, 10}, []fencing.Token{stale.Token, stale.Mark})
			assertBeginningOf(t, name, stale.Resource)

			w = handle(t, h, "PUT")
			assert.Equal(t, 428, w.Code)
			assert.Less(t, w.Body.Len(), 32<<10)
			err := httpguard.CheckResponse(w.Result()) //nolint:bodyclose // it is in memory
			require.ErrorIs(t, err, fencing.ErrMissing)
		})
	}

	exact := strings.Repeat("a", 1<<10)
	w := httptest.NewRecorder()
	require.True(t, httpguard.WriteError(w, &fencing.StaleError{Resource: exact, Token: 1, Mark: 2}))
	assert.Equal(t, exact, fields(t, w)["resource"], "a name of 1 KiB is whole")
}

// assertBeginningOf checks that got is a name cut off between two runes.
func assertBeginningOf(t *testing.T, name, got string) {
	t.Helper()
	assert.LessOrEqual(t, len(got), 3<<10, "a byte that is no UTF-8 has become three")
	beginning, cut := strings.CutSuffix(got, "…")
	assert.True(t, cut, "it shows that there was more")
	if utf8.ValidString(name) {
		assert.LessOrEqual(t, len(got), 1<<10)
		assert.Greater(t, len(got), 1<<10-utf8.UTFMax)
		assert.True(t, strings.HasPrefix(name, beginning))
	}
}

// answer is a response as a client gets it.
func answer(status int, kind string, body io.Reader) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}},
		Body: io.NopCloser(body)}
}

func TestCheckResponseLeavesOtherResponsesAlone(t *testing.T) {
	const kind = "application/problem+json"
	ours := `{"type":"` + httpguard.TypeStale + `","resource":"r","token":"1","mark":"2"}`
	missing := `{"type":"` + httpguard.TypeMissing + `","resource":"r"}`
	for name, c := range map[string]struct {
		status     int
		kind, body string
	}{
		"200":                        {200, kind, ours},
		"409":                        {409, kind, ours},
		"412 of If-Match":            {412, "text/plain", "precondition failed"},
		"412 of another problem":     {412, kind, `{"type":"about:blank","title":"Precondition Failed"}`},
		"412 that is called missing": {412, kind, missing},
		"428 that is called stale":   {428, kind, ours},
		"428 of another problem":     {428, kind, `{"title":"If-Match required"}`},
		"412 that is no JSON":        {412, kind, "<html>"},
		"412 that is a JSON list":    {412, kind, "[1]"},
		"412 of another kind":        {412, "application/json", ours},
		"412 without a kind":         {412, "", ours},
	} {
		r := answer(c.status, c.kind, strings.NewReader(c.body))
		require.NoError(t, httpguard.CheckResponse(r), name)
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		assert.Equal(t, c.body, string(text), "%s: the body is there", name)
	}
	noBody := answer(412, kind, nil)
	noBody.Body = nil
	assert.NoError(t, httpguard.CheckResponse(noBody), "no body")
}

func TestCheckResponseReadsRefusals(t *testing.T) {
	refusal := func(numbers string) *http.Response {
		return answer(412, "application/problem+json; charset=utf-8",
			strings.NewReader(`{"type":"`+httpguard.TypeStale+`","resource":"r",`+numbers+`}`))
	}
	r := refusal(`"token":"1","mark":"18446744073709551615"`)
	var stale *fencing.StaleError
	require.ErrorAs(t, httpguard.CheckResponse(r), &stale)
	assert.Equal(t, fencing.StaleError{Resource: "r", Token: 1, Mark: 1<<64 - 1}, *stale)
	require.ErrorAs(t, httpguard.CheckResponse(r), &stale, "again: the body is read from its beginning")

	for _, numbers := range []string{`"token":"x","mark":"2"`, `"token":"1"`, `"mark":"2"`,
		`"token":"1","mark":"0"`, `"other":{}`} {
		err := httpguard.CheckResponse(refusal(numbers)) //nolint:bodyclose // it is in memory
		require.ErrorIs(t, err, fencing.ErrStale, numbers)
		require.NotErrorAs(t, err, new(*fencing.StaleError), "%s: no numbers that the server did not say", numbers)
	}
}

func TestCheckResponseReadsABoundedBody(t *testing.T) {
	read := 0
	endless := io.TeeReader(neverEnding{}, counter{&read})
	r := answer(412, "application/problem+json", endless)
	require.NoError(t, httpguard.CheckResponse(r))
	assert.LessOrEqual(t, read, 64<<10)

	broken := errors.New("connection reset")
	r = answer(412, "application/problem+json", io.MultiReader(strings.NewReader("{"), iotest.ErrReader(broken)))
	require.NoError(t, httpguard.CheckResponse(r))
	text, err := io.ReadAll(r.Body)
	assert.Equal(t, "{", string(text))
	assert.ErrorIs(t, err, broken)
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

type counter struct{ n *int }

func (c counter) Write(p []byte) (int, error) { *c.n += len(p); return len(p), nil }
