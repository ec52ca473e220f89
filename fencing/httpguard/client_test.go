package httpguard_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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
		assert.Empty(t, w.Body.String())
		assert.Empty(t, w.Header())
	}

	numbers := &fencing.StaleError{Resource: "row ü\n&", Token: 3, Mark: 1 << 63}
	for want, err := range map[error]error{
		numbers:            fmt.Errorf("db.internal:5432 as admin: %w", numbers),
		fencing.ErrStale:   fmt.Errorf("as admin: %w", fencing.ErrStale), // without numbers
		fencing.ErrMissing: fmt.Errorf("as admin: %w", fencing.ErrMissing),
		&fencing.StaleError{Token: 3, Mark: 4}: &fencing.StaleError{ // the name is too long for a header
			Resource: strings.Repeat("a", fencing.MaxNameLen+1), Token: 3, Mark: 4},
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Length", "3")
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Kept", "yes")
		assert.True(t, httpguard.WriteError(w, err))
		assert.NotContains(t, w.Body.String(), "admin", "what is around the refusal is the server's own")
		assert.Empty(t, w.Header().Get("Content-Length")+w.Header().Get("Content-Encoding"))
		assert.Equal(t, "yes", w.Header().Get("Kept"))
		got := httpguard.CheckResponse(w.Result()) //nolint:bodyclose // it is in memory
		if stale := new(fencing.StaleError); errors.As(want, &stale) {
			assert.Equal(t, want, got)
		} else {
			require.ErrorIs(t, got, want)
			require.False(t, errors.As(got, &stale), "no numbers that the server did not say")
		}
	}
}

func TestCheckResponseLeavesOtherResponsesAlone(t *testing.T) {
	for name, c := range map[string]struct {
		status           int
		refused, numbers string
		want             error
	}{
		"ours":                       {412, "stale", "1", &fencing.StaleError{Token: 1, Mark: 1}},
		"ours, without numbers":      {412, "stale", "", fencing.ErrStale},
		"ours, malformed":            {412, "stale", "x", fencing.ErrStale},
		"200":                        {200, "stale", "1", nil},
		"409":                        {409, "stale", "1", nil},
		"412 of If-Match":            {412, "", "", nil},
		"412 that is called missing": {412, "missing", "1", nil},
		"428 that is called stale":   {428, "stale", "1", nil},
		"428 of another kind":        {428, "", "", nil},
	} {
		r := &http.Response{StatusCode: c.status, Header: http.Header{}}
		r.Header.Set(httpguard.RefusedHeader, c.refused)
		r.Header.Set(httpguard.Header, c.numbers)
		r.Header.Set("Fencing-Mark", c.numbers)
		err := httpguard.CheckResponse(r)
		if stale := new(fencing.StaleError); errors.As(c.want, &stale) {
			assert.Equal(t, c.want, err, name)
		} else {
			assert.ErrorIs(t, err, c.want, name)
		}
	}
}
