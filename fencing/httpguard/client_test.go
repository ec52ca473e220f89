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

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/httpguard"
)

// base is a RoundTripper that keeps what it was given.
type base struct {
	sent []*http.Request
	err  error
}

func (b *base) RoundTrip(r *http.Request) (*http.Response, error) {
	b.sent = append(b.sent, r)
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, b.err
}

// body knows whether it was closed.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error { b.closed = true; return nil }

func TestTheTokenOfTheContextIsSent(t *testing.T) {
	b := &base{}
	tr := &httpguard.Transport{Base: b}
	for _, method := range []string{"PUT", "GET", ""} {
		r := request(t, method, "http://host/", 1<<64-1, "")
		r.Header.Set("Other", "kept")
		require.NoError(t, trip(tr, r))
		got := b.sent[len(b.sent)-1]
		assert.Equal(t, []string{"18446744073709551615"}, got.Header[httpguard.Header], "method %q", method)
		assert.Equal(t, "kept", got.Header.Get("Other"))
		assert.NotContains(t, r.Header, httpguard.Header, "the request is its caller's")
	}
	r := request(t, "PUT", "http://host/", 7, "")
	r.Header = nil
	require.NoError(t, trip(tr, r))
	assert.Nil(t, r.Header)
	b.err = errors.New("broken pipe")
	assert.Equal(t, b.err, trip(tr, r), "what the base says is passed on")
}

func TestAWriteWithoutATokenIsNotSent(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "CONNECT", "PURGE", "get"} {
		b := &base{}
		r := request(t, method, "http://host/", 0, "")
		data := &body{Reader: strings.NewReader("data")}
		r.Body = data
		err := trip(&httpguard.Transport{Base: b}, r)
		require.ErrorIs(t, err, fencing.ErrMissing, method)
		assert.Empty(t, b.sent, method)
		assert.True(t, data.closed, "a RoundTripper closes the body, whatever happens")
	}
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE", ""} {
		b := &base{}
		req := request(t, method, "http://host/", 0, "")
		err := trip(&httpguard.Transport{Base: b}, req)
		require.NoError(t, err, method)
		assert.NotContains(t, b.sent[0].Header, httpguard.Header)
	}
}

func TestATokenInTheHeaderByHandIsLeftAlone(t *testing.T) {
	b := &base{}
	for _, token := range []fencing.Token{0, 8} {
		r := request(t, "PUT", "http://host/", token, "")
		r.Header.Set(httpguard.Header, "7")
		require.NoError(t, trip(&httpguard.Transport{Base: b}, r))
		assert.Equal(t, []string{"7"}, b.sent[len(b.sent)-1].Header[httpguard.Header])
	}
}

func TestWithTokensOfTwoLocksTheTransportIsToldWhichIsMeant(t *testing.T) {
	b := &base{}
	ctx := fencing.NewContext(fencing.NewContext(t.Context(), "order", 3), "invoice", 900)
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://host/order", nil)
	require.NoError(t, err)
	err = trip(&httpguard.Transport{Base: b}, req)
	require.ErrorIs(t, err, locker.ErrInvalid)
	require.ErrorContains(t, err, "Transport.Lock")
	assert.Empty(t, b.sent)
	lock := func(r *http.Request) string { return r.URL.Path[1:] }
	require.NoError(t, trip(&httpguard.Transport{Base: b, Lock: lock}, req))
	assert.Equal(t, "3", b.sent[0].Header.Get(httpguard.Header))
}

func TestARedirectedWriteHasItsTokenThroughTheDefaultTransport(t *testing.T) {
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got = append(got, r.URL.Path+" "+r.Header.Get(httpguard.Header)+" "+string(text))
		if r.URL.Path == "/old" {
			http.Redirect(w, r, "/new", http.StatusPermanentRedirect)
		}
	}))
	defer s.Close()
	c := &http.Client{Transport: &httpguard.Transport{}}
	_, err := send(t, c, "PUT", s.URL+"/old", 5, "data")
	require.NoError(t, err)
	assert.Equal(t, []string{"/old 5 data", "/new 5 data"}, got)
	c.CloseIdleConnections() // or its goroutines are found at the end
}

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
