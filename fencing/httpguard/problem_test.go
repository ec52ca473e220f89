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

	for err, c := range map[error]struct {
		status int
		kind   string
	}{
		fencing.ErrStale:   {412, httpguard.TypeStale}, // without numbers
		fencing.ErrMissing: {428, httpguard.TypeMissing},
	} {
		w := httptest.NewRecorder()
		assert.True(t, httpguard.WriteError(w, fmt.Errorf("around: %w", err)))
		assert.Equal(t, c.status, w.Code)
		assert.Equal(t, c.kind, fields(t, w)["type"])
		require.ErrorIs(t, httpguard.CheckResponse(w.Result()), err) //nolint:bodyclose // it is in memory
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
	long := io.TeeReader(strings.NewReader(strings.Repeat(" ", 1<<20)), counter{&read})
	require.NoError(t, httpguard.CheckResponse(answer(412, "application/problem+json", long)))
	assert.LessOrEqual(t, read, 64<<10)

	broken := errors.New("connection reset")
	r := answer(412, "application/problem+json", io.MultiReader(strings.NewReader("{"), iotest.ErrReader(broken)))
	require.NoError(t, httpguard.CheckResponse(r))
	text, err := io.ReadAll(r.Body)
	assert.Equal(t, "{", string(text))
	assert.ErrorIs(t, err, broken)
}

type counter struct{ n *int }

func (c counter) Write(p []byte) (int, error) { *c.n += len(p); return len(p), nil }
