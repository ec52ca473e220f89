package httpguard_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/httpguard"
)

// slow is a handler that says when it begins, and ends when it is told to.
type slow struct {
	guard   fencing.Guard
	came    chan struct{} // an element for each request
	began   chan struct{} // one for each whose turn has come
	release chan struct{}
	running atomic.Int32
	calls   atomic.Int32
	ended   chan struct{} // one for each that is over, refused or not
	server  *httptest.Server
}

func startSlow(t *testing.T) *slow {
	s := &slow{came: make(chan struct{}, 100), began: make(chan struct{}, 100),
		release: make(chan struct{}, 100), ended: make(chan struct{}, 100)}
	h := httpguard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.calls.Add(1)
		_, err := fencing.TokenFor(r.Context(), r.URL.Path)
		assert.NoError(t, err, "with a Guard the token is carried, too")
		if r.URL.Path == "/thing" {
			assert.Equal(t, int32(1), s.running.Add(1), "two write to one resource at once")
			defer s.running.Add(-1)
		}
		s.began <- struct{}{}
		<-s.release
	}), path, &httpguard.Options{Guard: &s.guard})
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.came <- struct{}{}
		defer func() { s.ended <- struct{}{} }()
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.server.Close)
	return s
}

func TestOneAtATimePerResource(t *testing.T) {
	s := startSlow(t)
	c := clientOf(t, s.server)
	const n = 8
	done := make(chan struct{}, n)
	for range n {
		go func() {
			_, err := send(t, c, "PUT", s.server.URL+"/thing", 5, "data")
			assert.NoError(t, err)
			done <- struct{}{}
		}()
	}
	wait(t, s.began, "the first")
	go func() {
		_, err := send(t, c, "PUT", s.server.URL+"/other", 1, "data")
		assert.NoError(t, err)
		done <- struct{}{}
	}()
	wait(t, s.began, "another resource does not wait")
	for range n + 1 {
		s.release <- struct{}{}
	}
	for range n + 1 {
		wait(t, done, "all")
	}
	assert.Equal(t, int32(n+1), s.calls.Load())
}

func TestARequestThatBecomesStaleWhileItWaitsIsRefused(t *testing.T) {
	s := startSlow(t)
	c := clientOf(t, s.server)
	later, earlier := make(chan error, 1), make(chan error, 1)
	go func() { _, err := send(t, c, "PUT", s.server.URL+"/thing", 2, "newer"); later <- err }()
	wait(t, s.began, "the newer write is under way, its mark has not moved")
	go func() { _, err := send(t, c, "PUT", s.server.URL+"/thing", 1, "older"); earlier <- err }()
	select {
	case err := <-earlier:
		require.Fail(t, "it did not wait for its turn", "%v", err)
	case <-time.After(20 * time.Millisecond): // as a rule it waits by now; if not yet, the end is the same
	}
	s.release <- struct{}{}
	require.NoError(t, <-later)
	require.ErrorIs(t, <-earlier, fencing.ErrStale)
	assert.Equal(t, int32(1), s.calls.Load(), "refused before its handler was called")
}

func TestAClientThatGoesAwayWhileWaiting(t *testing.T) {
	for _, body := range []string{"", "data"} {
		s := startSlow(t)
		c := clientOf(t, s.server)
		first := make(chan error, 1)
		go func() { _, err := send(t, c, "PUT", s.server.URL+"/thing", 1, body); first <- err }()
		wait(t, s.began, "the first")

		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			r := request(t, "PUT", s.server.URL+"/thing", 2, body)
			_, err := c.Do(r.WithContext(fencing.NewContext(ctx, "r", 2))) //nolint:bodyclose // there is none
			gone <- err
		}()
		wait(t, s.came, "the first has come")
		wait(t, s.came, "and so has the second, and waits for its turn or is about to")
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		wait(t, s.ended, "the server gives it up while the first is under way")
		s.release <- struct{}{}
		require.NoError(t, <-first)
		assert.Equal(t, int32(1), s.calls.Load(), "a write that its client has given up is not begun")
		assert.Equal(t, fencing.Token(1), markOf(&s.guard))
	}
}

func TestAWaitThatEndsWithItsClientStillThereIsAnswered(t *testing.T) {
	var guard fencing.Guard
	h := httpguard.Handler(unreached(t), path, &httpguard.Options{Guard: &guard})
	err := guard.Do(t.Context(), "/thing", 1, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		w := put(ctx, h, "2", strings.NewReader("data"))
		assert.Equal(t, 503, w.Code)
		assert.Equal(t, "/thing", fields(t, w)["resource"])
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, fencing.Token(1), markOf(&guard))
}

func TestARequestWhoseClientIsGoneDoesNotBegin(t *testing.T) {
	var guard fencing.Guard
	h := httpguard.Handler(unreached(t), path, &httpguard.Options{Guard: &guard})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // the turn is free: which of the two is seen first would be chance
		put(ctx, h, "2", nil)
	}
	assert.Equal(t, fencing.Token(0), markOf(&guard))
}

func TestAStaleRequestIsRefusedBeforeItsBodyIsSent(t *testing.T) {
	var guard fencing.Guard
	require.NoError(t, guard.Do(t.Context(), "/thing", 2, nil))
	h := httpguard.Handler(http.NotFoundHandler(), path, &httpguard.Options{Guard: &guard})
	read := 0
	w := put(t.Context(), h, "1", io.TeeReader(strings.NewReader("data"), counter{&read}))
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

	_, err = send(t, clientOf(t, s), "PUT", s.URL+"/thing", 2, "newer")
	require.NoError(t, err, "the next holder does not wait for it")

	_, err = io.WriteString(conn, "-data")
	require.NoError(t, err)
	resp, err := http.ReadResponse(answers, nil)
	require.NoError(t, err)
	require.ErrorIs(t, httpguard.CheckResponse(resp), fencing.ErrStale)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, "newer", state)
}
