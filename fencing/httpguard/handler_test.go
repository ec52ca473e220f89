package httpguard_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/httpguard"
	"github.com/golockers/locker/internal/guardtest"
)

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
		h := httpguard.Handler(unreached(t), path, &httpguard.Options{Guard: &guard})
		w := handle(t.Context(), h, c.method, nil, c.tokens...)
		assert.Equal(t, c.status, w.Code, name)
		assert.Equal(t, c.refused, w.Header().Get(httpguard.RefusedHeader), name)
		assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		assert.NotEmpty(t, w.Body.String())
		assert.Equal(t, fencing.Token(10), markOf(&guard))
		if c.refused == "stale" {
			guardtest.Stale(t, httpguard.CheckResponse(w.Result()), "/thing", 9, 10) //nolint:bodyclose // in memory
		}
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

func TestWithoutAGuardTheTokenIsOnlyCarried(t *testing.T) {
	var got []fencing.Token
	h := httpguard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		token, err := fencing.FromContext(r.Context())
		assert.NoError(t, err)
		got = append(got, token)
	}), path, nil)
	assert.Equal(t, 200, handle(t.Context(), h, "PUT", nil, "9").Code)
	assert.Equal(t, 200, handle(t.Context(), h, "PUT", nil, "7").Code)
	assert.Equal(t, 428, handle(t.Context(), h, "PUT", nil).Code)
	assert.Equal(t, 400, handle(t.Context(), h, "PUT", nil, "x").Code)
	assert.Equal(t, []fencing.Token{9, 7}, got)
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
				func(_ http.ResponseWriter, r *http.Request) {
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
	read := 0
	h := httpguard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.LessOrEqual(t, read, 100)
		n, err := io.Copy(io.Discard, r.Body)
		assert.NoError(t, err)
		assert.Equal(t, int64(5000), n)
	}), path, &httpguard.Options{Guard: new(fencing.Guard), BodyAhead: 100})
	w := handle(t.Context(), h, "PUT", io.TeeReader(strings.NewReader(strings.Repeat("x", 5000)), counter{&read}), "1")
	assert.Equal(t, 200, w.Code)
}

func TestAHandlerMayAnswerBeforeItHasReadItsBody(t *testing.T) {
	var guard fencing.Guard
	s := serve(t, &httpguard.Options{Guard: &guard, BodyAhead: -1},
		func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			assert.NoError(t, c.EnableFullDuplex())
			lines := bufio.NewReader(r.Body)
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				_, _ = io.WriteString(w, line)
				assert.NoError(t, c.Flush())
			}
		})
	ours, theirs := io.Pipe()
	r := request(t, "PUT", s.URL+"/thing", 1, "")
	r.Body = ours
	go func() { _, _ = io.WriteString(theirs, "ping\n") }()
	resp, err := newClient(t).Do(r)
	require.NoError(t, err)
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "ping\n", line)
	require.NoError(t, theirs.Close())
	require.NoError(t, resp.Body.Close())
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

func TestAStaleRequestIsRefusedBeforeItsBodyIsSent(t *testing.T) {
	var guard fencing.Guard
	require.NoError(t, guard.Do(t.Context(), "/thing", 2, nil))
	h := httpguard.Handler(http.NotFoundHandler(), path, &httpguard.Options{Guard: &guard})
	read := 0
	w := handle(t.Context(), h, "PUT", io.TeeReader(strings.NewReader("data"), counter{&read}), "1")
	assert.Equal(t, 412, w.Code)
	assert.Zero(t, read, "the body was read")
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
