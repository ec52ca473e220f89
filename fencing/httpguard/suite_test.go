package httpguard_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/httpguard"
	"github.com/golockers/locker/internal/guardtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// path is the resource in most tests; nothing here has two paths.
func path(r *http.Request) string { return r.URL.Path }

// serve starts a server with next behind a Handler.
func serve(t *testing.T, opts *httpguard.Options, next http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(httpguard.Handler(next, path, opts))
	t.Cleanup(s.Close)
	return s
}

// newClient returns a client that sends tokens.
func newClient(t *testing.T) *http.Client {
	t.Helper()
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	return &http.Client{Transport: &httpguard.Transport{Base: base}, Timeout: patience}
}

// request makes a request whose context carries token; 0: none.
func request(t *testing.T, method, url string, token fencing.Token, body string) *http.Request {
	t.Helper()
	ctx := fencing.NewContext(context.Background(), "r", token)
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, url, from)
	require.NoError(t, err)
	return r
}

// send sends a request and returns the status and what CheckResponse says.
func send(t *testing.T, c *http.Client, method, url string, token fencing.Token, body string) (int, error) {
	t.Helper()
	resp, err := c.Do(request(t, method, url, token, body))
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	err = httpguard.CheckResponse(resp)
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// handle gives a request with these tokens to h, without a server.
func handle(ctx context.Context, h http.Handler, method string, body io.Reader, tokens ...string,
) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, "/thing", body)
	for _, token := range tokens {
		r.Header.Add(httpguard.Header, token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// unreached is a handler that must not be called.
func unreached(t *testing.T) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		assert.Fail(t, "the handler was called")
	})
}

// trip sends r by tr.
func trip(tr *httpguard.Transport, r *http.Request) error {
	_, err := tr.RoundTrip(r) //nolint:bodyclose // there is none
	return err
}

func markOf(g *fencing.Guard) fencing.Token {
	mark, _ := g.Mark("/thing")
	return mark
}

// values are the state of a server. With a guard of their own, they stand for a
// store that has one.
type values struct {
	own *fencing.Guard

	mu sync.Mutex
	of map[string]string
}

func (v *values) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	set := func() error {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.of[r.URL.Path] = string(text)
		return nil
	}
	if r.Method == http.MethodPut && v.own == nil {
		_ = set()
	} else if r.Method == http.MethodPut {
		token, err := fencing.TokenFor(r.Context(), nameOf(r))
		if err == nil {
			err = v.own.Do(r.Context(), nameOf(r), token, set)
		}
		if err != nil && !httpguard.WriteError(w, err) {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	_, _ = io.WriteString(w, v.of[r.URL.Path])
}

func nameOf(r *http.Request) string { return r.URL.Path[1:] }

func TestSuite(t *testing.T) {
	var guard fencing.Guard
	for name, opts := range map[string]*httpguard.Options{
		"guard of the server": {Guard: &guard},
		"guard of its store":  {Raise: guard.Raise},
	} {
		t.Run(name, func(t *testing.T) {
			guard = fencing.Guard{}
			v := &values{of: map[string]string{}}
			if opts.Guard == nil {
				v.own = &guard
			}
			s := httptest.NewServer(httpguard.Handler(v, nameOf, opts))
			t.Cleanup(s.Close)
			guardtest.Run(t, func(t *testing.T) guardtest.Store { return overHTTP(t, newClient(t), s.URL, &guard) })
		})
	}
}

// overHTTP is what the client of a server has for a store.
func overHTTP(t *testing.T, c *http.Client, base string, guard *fencing.Guard) guardtest.Store {
	do := func(
		ctx context.Context, method, r string, token fencing.Token, value string, raise bool,
	) (string, error) {
		req, err := http.NewRequestWithContext(fencing.NewContext(ctx, r, token), method,
			base+"/"+url.PathEscape(r), strings.NewReader(value))
		require.NoError(t, err)
		if raise {
			httpguard.RaiseFirst(req)
		}
		resp, err := c.Do(req)
		if err != nil {
			return "", err
		}
		defer func() { _ = resp.Body.Close() }()
		if err := httpguard.CheckResponse(resp); err != nil {
			return "", err
		}
		text, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode >= 300 {
			err = fmt.Errorf("%s: %s", resp.Status, text)
		}
		return string(text), err
	}
	return guardtest.Store{
		Write: func(ctx context.Context, r string, token fencing.Token, value string) error {
			_, err := do(ctx, http.MethodPut, r, token, value, false)
			return err
		},
		Raise: func(ctx context.Context, r string, token fencing.Token) error {
			_, err := do(ctx, http.MethodGet, r, token, "", true)
			return err
		},
		Read: func(ctx context.Context, r string) (string, error) {
			return do(ctx, http.MethodGet, r, 0, "", false)
		},
		Mark: func(_ context.Context, r string) (fencing.Token, error) {
			mark, _ := guard.Mark(r)
			return mark, nil
		},
	}
}

func TestRaiseThatNobodyDoesIsNotTakenForOne(t *testing.T) {
	guarded := serve(t, nil, func(http.ResponseWriter, *http.Request) { t.Error("handled") })
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer plain.Close()
	for url, want := range map[string]int{guarded.URL: http.StatusNotImplemented, plain.URL: http.StatusOK} {
		req := request(t, "GET", url, 7, "")
		httpguard.RaiseFirst(req)
		resp, err := newClient(t).Do(req)
		require.NoError(t, err)
		assert.Equal(t, want, resp.StatusCode)
		if err = httpguard.CheckResponse(resp); want == http.StatusOK {
			require.ErrorIs(t, err, errors.ErrUnsupported)
		}
		require.NoError(t, resp.Body.Close())
	}
}
