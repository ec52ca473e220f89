package httpguard_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/httpguard"
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

// handle gives a request with these headers to h, without a server.
func handle(t *testing.T, h http.Handler, method string, tokens ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, "/thing", nil)
	for _, token := range tokens {
		r.Header.Add(httpguard.Header, token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// put gives a PUT with this token to h, without a server.
func put(ctx context.Context, h http.Handler, token string, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodPut, "/thing", body)
	r.Header.Set(httpguard.Header, token)
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

// fields reads the body of a problem.
func fields(t *testing.T, w *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	var p map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p), "%s", w.Body)
	assert.EqualValues(t, w.Code, p["status"])
	assert.NotEmpty(t, p["title"])
	assert.NotEmpty(t, p["detail"])
	return p
}

func markOf(g *fencing.Guard) fencing.Token {
	mark, _ := g.Mark("/thing")
	return mark
}
