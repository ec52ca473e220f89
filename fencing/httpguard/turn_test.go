package httpguard_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/httpguard"
)

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
