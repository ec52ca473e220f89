package testserver_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/golockers/locker/internal/testserver"
)

func TestMain(m *testing.M) {
	testserver.RunRole(testserver.Roles{
		"echo":  echo,
		"count": count,
		"exit":  func(*testserver.Parent) { os.Exit(7) },
		"leave": func(p *testserver.Parent) { p.Say("bye") },
		"flood": flood,
		"spin":  spin,
		"wait":  func(*testserver.Parent) { select {} },
		"panic": func(*testserver.Parent) { panic("on purpose") },
	})
	// Proxies, servers and children have goroutines: none may outlive the tests.
	goleak.VerifyTestMain(m)
}
