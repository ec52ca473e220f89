package lab_test

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker/internal/lab"
)

// connect connects to addr.
func connect(addr string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(context.Background(), "tcp", addr)
}

// listen listens on addr.
func listen(addr string) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
}

func TestMain(m *testing.M) {
	lab.RunRole(lab.Roles{
		"echo":  echo,
		"exit":  func(*lab.Parent) { os.Exit(7) },
		"leave": func(p *lab.Parent) { p.Say("bye") },
		"flood": flood,
		"spin":  spin,
		"wait":  func(*lab.Parent) { select {} },
		"panic": func(*lab.Parent) { panic("on purpose") },
	})
	// Proxies, servers and children have goroutines: none may outlive the tests.
	goleak.VerifyTestMain(m)
}

// soon is for what happens at once where the machine is not busy.
const soon = time.Minute

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, soon, 2*time.Millisecond, what)
}
