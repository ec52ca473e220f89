package httpguard_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
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
	if r.Method == http.MethodPost {
		set = nil // it raises the mark, and reads
	}
	if v.own != nil && r.Method != http.MethodGet {
		token, err := fencing.TokenFor(r.Context(), nameOf(r))
		if err == nil {
			err = v.own.Do(r.Context(), nameOf(r), token, set)
		}
		if err != nil {
			if !httpguard.WriteError(w, err) {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
			return
		}
	} else if r.Method == http.MethodPut {
		_ = set()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	_, _ = io.WriteString(w, v.of[r.URL.Path])
}

func nameOf(r *http.Request) string { return r.URL.Path[1:] }

func TestSuite(t *testing.T) {
	var guard fencing.Guard
	for name, v := range map[string]*values{"guard of the server": {}, "guard of its store": {own: &guard}} {
		t.Run(name, func(t *testing.T) {
			guard, v.of = fencing.Guard{}, map[string]string{}
			opts := &httpguard.Options{Guard: &guard}
			if v.own != nil {
				opts = nil
			}
			s := httptest.NewServer(httpguard.Handler(v, nameOf, opts))
			t.Cleanup(s.Close)
			guardtest.Run(t, func(t *testing.T) guardtest.Store { return overHTTP(t, newClient(t), s.URL, &guard) })
		})
	}
}

// overHTTP is what the client of a server has for a store.
func overHTTP(t *testing.T, c *http.Client, base string, guard *fencing.Guard) guardtest.Store {
	do := func(ctx context.Context, method, r string, token fencing.Token, value string) (string, error) {
		req, err := http.NewRequestWithContext(fencing.NewContext(ctx, r, token), method,
			base+"/"+url.PathEscape(r), strings.NewReader(value))
		require.NoError(t, err)
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
			_, err := do(ctx, http.MethodPut, r, token, value)
			return err
		},
		Raise: func(ctx context.Context, r string, token fencing.Token) error {
			_, err := do(ctx, http.MethodPost, r, token, "")
			return err
		},
		Read: func(ctx context.Context, r string) (string, error) {
			return do(ctx, http.MethodGet, r, 0, "")
		},
		Mark: func(_ context.Context, r string) (fencing.Token, error) {
			mark, _ := guard.Mark(r)
			return mark, nil
		},
	}
}

func TestWhatIsRefusedAndHow(t *testing.T) {
	for name, c := range map[string]struct {
		method  string
		tokens  []string
		status  int
		refused string
	}{
		"none":                 {"PUT", nil, 428, "missing"},
		"empty":                {"PUT", []string{""}, 428, "missing"},
		"zero":                 {"PUT", []string{"0"}, 428, "missing"},
		"method in small":      {"get", nil, 428, "missing"},
		"unknown method":       {"PURGE", nil, 428, "missing"},
		"stale":                {"PUT", []string{"9"}, 412, "stale"},
		"a word":               {"PUT", []string{"ten"}, 400, ""},
		"a sign":               {"PUT", []string{"+11"}, 400, ""},
		"hexadecimal":          {"PUT", []string{"0x11"}, 400, ""},
		"too large":            {"PUT", []string{"18446744073709551616"}, 400, ""},
		"a list":               {"PUT", []string{"11, 12"}, 400, ""},
		"twice":                {"PUT", []string{"11", "11"}, 400, ""},
		"twice, one is stale":  {"PUT", []string{"9", "11"}, 400, ""},
		"a word where safe":    {"GET", []string{"ten"}, 400, ""},
		"twice where it's not": {"GET", []string{"11", "12"}, 400, ""},
	} {
		var guard fencing.Guard
		require.NoError(t, guard.Do(t.Context(), "/thing", 10, nil))
		read := 0
		body := func() io.Reader { return io.TeeReader(strings.NewReader("data"), counter{&read}) }
		h := httpguard.Handler(unreached(t), path, &httpguard.Options{Guard: &guard})
		w := handle(t.Context(), h, c.method, body(), c.tokens...)
		assert.Equal(t, c.status, w.Code, name)
		assert.Equal(t, c.refused, w.Header().Get(httpguard.RefusedHeader), name)
		assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		assert.NotEmpty(t, w.Body.String())
		assert.Equal(t, fencing.Token(10), markOf(&guard))
		if c.refused == "stale" { // nobody but a guard can know
			guardtest.Stale(t, httpguard.CheckResponse(w.Result()), "/thing", 9, 10) //nolint:bodyclose // in memory
		} else {
			assert.Equal(t, c.status, handle(t.Context(), httpguard.Handler(unreached(t), path, nil), c.method,
				body(), c.tokens...).Code, "%s, without a guard", name)
		}
		assert.Zero(t, read, "the body was read")
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
			assert.Equal(t, 200, handle(t.Context(), h, method, nil, tokens...).Code)
			assert.True(t, called)
		}
	}
	assert.Equal(t, fencing.Token(10), markOf(&guard), "a read moves no mark")
}

func TestTheNameOfTheResourceIsNeeded(t *testing.T) {
	next := unreached(t)
	for _, opts := range []*httpguard.Options{nil, {Guard: &fencing.Guard{}}} {
		for _, name := range []string{"", strings.Repeat("a", fencing.MaxNameLen+1)} {
			h := httpguard.Handler(next, func(*http.Request) string { return name }, opts)
			w := handle(t.Context(), h, "PUT", nil, "1")
			assert.Equal(t, 500, w.Code)
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

func TestBodiesReachTheHandlerWhole(t *testing.T) {
	for _, length := range []int{0, 1, 99, 100, 101, 5000} {
		for _, ahead := range []int64{0, 1, 100, -1} {
			var guard fencing.Guard
			want := strings.Repeat("x", length)
			s := serve(t, &httpguard.Options{Guard: &guard, BodyAhead: ahead},
				func(w http.ResponseWriter, r *http.Request) {
					assert.NoError(t, http.NewResponseController(w).EnableFullDuplex(), "it is the server's own")
					text, err := io.ReadAll(r.Body)
					assert.NoError(t, err)
					assert.Equal(t, want, string(text))
					assert.Equal(t, int64(length), r.ContentLength)
					assert.NoError(t, r.Body.Close())
				})
			status, err := send(t, newClient(t), "PUT", s.URL+"/thing", 1, want)
			require.NoError(t, err)
			assert.Equal(t, 200, status)
		}
	}
}

func TestABodyThatBreaksOffBreaksOffInTheHandler(t *testing.T) {
	broken := errors.New("broken off")
	h := httpguard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		assert.Equal(t, "half", string(text))
		assert.ErrorIs(t, err, broken)
		http.Error(w, "no", http.StatusBadRequest)
	}), path, &httpguard.Options{Guard: new(fencing.Guard)})
	w := handle(t.Context(), h, "PUT", io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)), "1")
	assert.Equal(t, 400, w.Code)
	assert.Equal(t, "no\n", w.Body.String(), "nothing is added to what the handler answered")
}

func TestOnlySoMuchOfABodyIsReadAhead(t *testing.T) {
	for ahead, most := range map[int64]int{100: 100, -1: 0} { // 0: a handler may answer what it has not read yet
		read := 0
		h := httpguard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			assert.LessOrEqual(t, read, most)
			n, err := io.Copy(io.Discard, r.Body)
			assert.NoError(t, err)
			assert.Equal(t, int64(5000), n)
		}), path, &httpguard.Options{Guard: new(fencing.Guard), BodyAhead: ahead})
		w := handle(t.Context(), h, "PUT", io.TeeReader(strings.NewReader(strings.Repeat("x", 5000)), counter{&read}), "1")
		assert.Equal(t, 200, w.Code)
	}
}

func TestAWaitThatEndsWithItsClientStillThereIsAnswered(t *testing.T) {
	var guard fencing.Guard
	h := httpguard.Handler(unreached(t), path, &httpguard.Options{Guard: &guard})
	err := guard.Do(t.Context(), "/thing", 1, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		w := handle(ctx, h, "PUT", strings.NewReader("data"), "2")
		assert.Equal(t, 503, w.Code)
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, fencing.Token(1), markOf(&guard))
}

// A holder that is paused halfway through sending its body must not keep the
// next one out; and when it goes on, it is refused.
func TestAHolderPausedInTheMiddleOfItsBody(t *testing.T) {
	var guard fencing.Guard
	state := ""
	s := serve(t, &httpguard.Options{Guard: &guard}, func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		state = string(text)
	})
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = fmt.Fprintf(conn, "PUT /thing HTTP/1.1\r\nHost: h\r\n%s: 1\r\n"+
		"Content-Length: 10\r\nExpect: 100-continue\r\n\r\n", httpguard.Header)
	require.NoError(t, err)
	answers := bufio.NewReader(conn)
	line, err := answers.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "100 Continue", "the server has begun to read the body")
	_, err = answers.ReadString('\n')
	require.NoError(t, err)
	_, err = io.WriteString(conn, "stale")
	require.NoError(t, err)

	_, err = send(t, newClient(t), "PUT", s.URL+"/thing", 2, "newer")
	require.NoError(t, err, "the next holder does not wait for it")

	_, err = io.WriteString(conn, "-data")
	require.NoError(t, err)
	resp, err := http.ReadResponse(answers, nil)
	require.NoError(t, err)
	require.ErrorIs(t, httpguard.CheckResponse(resp), fencing.ErrStale)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, "newer", state)
}

type counter struct{ n *int }

func (c counter) Write(p []byte) (int, error) { *c.n += len(p); return len(p), nil }
