package httpguard_test

import (
	"context"
	"errors"
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
	sent   []*http.Request
	err    error
	closed int
}

func (b *base) RoundTrip(r *http.Request) (*http.Response, error) {
	b.sent = append(b.sent, r)
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, b.err
}

func (b *base) CloseIdleConnections() { b.closed++ }

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
		err := trip(tr, r)
		require.NoError(t, err)
		got := b.sent[len(b.sent)-1]
		assert.Equal(t, []string{"18446744073709551615"}, got.Header[httpguard.Header], "method %q", method)
		assert.Equal(t, "kept", got.Header.Get("Other"))
		assert.NotContains(t, r.Header, httpguard.Header, "the request is its caller's")
	}
	r := request(t, "PUT", "http://host/", 7, "")
	r.Header = nil
	err := trip(tr, r)
	require.NoError(t, err)
	assert.Nil(t, r.Header)
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
	b := &base{}
	req := request(t, "PUT", "http://host/", 0, "")
	err := trip(&httpguard.Transport{Base: b, Optional: true}, req)
	require.NoError(t, err)
	assert.NotContains(t, b.sent[0].Header, httpguard.Header)
}

func TestATokenInTheHeaderByHand(t *testing.T) {
	for name, c := range map[string]struct {
		method  string
		context fencing.Token
		header  []string
		want    error
	}{
		"kept":                  {"PUT", 0, []string{"7"}, nil},
		"the same":              {"PUT", 7, []string{"7"}, nil},
		"another":               {"PUT", 8, []string{"7"}, locker.ErrInvalid},
		"twice":                 {"PUT", 7, []string{"7", "7"}, locker.ErrInvalid},
		"no token":              {"PUT", 7, []string{"seven"}, locker.ErrInvalid},
		"empty":                 {"PUT", 7, []string{""}, fencing.ErrMissing},
		"no token, safe method": {"GET", 0, []string{"seven"}, locker.ErrInvalid},
	} {
		b := &base{}
		r := request(t, c.method, "http://host/", c.context, "")
		r.Header[httpguard.Header] = c.header
		err := trip(&httpguard.Transport{Base: b}, r)
		require.ErrorIs(t, err, c.want, name)
		if c.want == nil {
			assert.Equal(t, []string{"7"}, b.sent[0].Header[httpguard.Header], name)
		} else {
			assert.Empty(t, b.sent, name)
		}
	}
}

func TestWhatTheBaseSaysIsPassedOn(t *testing.T) {
	broken := errors.New("broken pipe")
	b := &base{err: broken}
	tr := &httpguard.Transport{Base: b}
	err := trip(tr, request(t, "PUT", "http://host/", 1, ""))
	assert.Equal(t, broken, err)
	(&http.Client{Transport: tr}).CloseIdleConnections()
	assert.Equal(t, 1, b.closed)

	s := serve(t, nil, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	req := request(t, "PUT", s.URL, 1, "through the default")
	resp, err := (&http.Client{Transport: &httpguard.Transport{}}).Do(req)
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, "through the default", string(text))
	(&http.Client{Transport: &httpguard.Transport{}}).CloseIdleConnections()
}

func TestARedirectedWriteHasItsToken(t *testing.T) {
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.URL.Path+" "+r.Header.Get(httpguard.Header))
		if r.URL.Path == "/old" {
			http.Redirect(w, r, "/new", http.StatusPermanentRedirect)
		}
	}))
	defer s.Close()
	_, err := send(t, clientOf(t, s), "PUT", s.URL+"/old", 5, "data")
	require.NoError(t, err)
	assert.Equal(t, []string{"/old 5", "/new 5"}, got)
}

func TestAServerRefusesAWriteWithoutAToken(t *testing.T) {
	s := serve(t, &httpguard.Options{Guard: &fencing.Guard{}}, func(http.ResponseWriter, *http.Request) {})
	c := clientOf(t, s)
	_, err := send(t, c, "PUT", s.URL, 0, "")
	require.ErrorIs(t, err, fencing.ErrMissing, "through http.Client's own error")
	require.NotErrorIs(t, err, context.Canceled)
	c.Transport.(*httpguard.Transport).Optional = true
	status, err := send(t, c, "PUT", s.URL+"/thing", 0, "")
	assert.Equal(t, 428, status)
	require.ErrorIs(t, err, fencing.ErrMissing)
}
