package conformance_test

import (
	"net"
	"net/http/httptest"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker"
	"github.com/golockers/locker/conformance"
)

// echo is a server that sends back what it gets.
func echo(t *testing.T) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				b := make([]byte, 100)
				for {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					_, _ = c.Write(b[:n])
				}
			}()
		}
	}()
	return l.Addr().String()
}

// A reply that is to come is waited for; one that is not, a moment.
const (
	comes   = 10 * time.Second
	mustNot = 100 * time.Millisecond
)

// says sends a line and returns what comes back.
func says(t *testing.T, c net.Conn, line string, within time.Duration) (string, error) {
	t.Helper()
	_, err := c.Write([]byte(line))
	if err != nil {
		return "", err
	}
	require.NoError(t, c.SetReadDeadline(time.Now().Add(within)))
	b := make([]byte, 100)
	n, err := c.Read(b)
	return string(b[:n]), err
}

func TestProxyDoesWhatAFaultIsToDo(t *testing.T) {
	for _, way := range []string{"requests", "replies"} {
		t.Run(way, func(t *testing.T) {
			addr, p := conformance.Proxy(t, echo(t))
			set := p.Requests
			if way == "replies" {
				set = p.Replies
			}
			dial := func() net.Conn {
				c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			c := dial()
			got, err := says(t, c, "a", comes)
			require.NoError(t, err)
			assert.Equal(t, "a", got)
			assert.EqualValues(t, 1, p.Sent())

			set(conformance.Hold)
			_, err = says(t, c, "bc", mustNot)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.Eventually(t, func() bool { return p.Sent() == 3 }, comes, time.Millisecond,
				"what is held was sent")
			set(conformance.Pass)
			require.NoError(t, c.SetReadDeadline(time.Now().Add(comes)))
			b := make([]byte, 100)
			n, err := c.Read(b)
			require.NoError(t, err)
			assert.Equal(t, "bc", string(b[:n]), "what was held arrives")

			set(conformance.Drop)
			_, err = says(t, c, "d", mustNot)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.Eventually(t, func() bool { return p.Sent() == 4 }, comes, time.Millisecond)
			set(conformance.Pass)
			_, err = says(t, c, "e", comes)
			require.ErrorIs(t, err, syscall.ECONNRESET, "a connection with a gap goes on")
			got, err = says(t, dial(), "f", comes)
			require.NoError(t, err)
			assert.Equal(t, "f", got)

			c = dial()
			_, err = says(t, c, "g", comes)
			require.NoError(t, err)
			set(conformance.Reset)
			_, err = says(t, c, "h", comes)
			require.Error(t, err)
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the client is not told")
			set(conformance.Pass)
			_, err = says(t, dial(), "i", comes)
			require.NoError(t, err)
		})
	}
}

func TestProxyEndsWithItsTest(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Run("", func(t *testing.T) {
		addr, p := conformance.Proxy(t, "127.0.0.1:1")
		p.Requests(conformance.Hold)
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
	})
	goleak.VerifyNone(t, before)
}

// A proxy that outlives the check is the harness's, and says nothing of a backend.
func TestProxyOfTheWholeTestIsNoLeakOfABackend(t *testing.T) {
	locks := &table{rows: make(map[string]row)}
	server := httptest.NewServer(serve(locks))
	defer server.Close()
	addr := server.Listener.Addr().String()
	h := remoteHarness(addr, locks, 300*time.Millisecond)
	h.Cut = func(conformance.T) (locker.Backend, conformance.Fault) {
		cut, fault := conformance.Proxy(t, addr)
		return connect(cut), fault
	}
	r := conformance.Prove(t.Context(), h, checkNamed(t, "close-cut-off"))
	assert.Equal(t, conformance.Passed, r.Outcome, "%v", r.Failures)
}
