package testserver_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Proxies, servers and children have goroutines: none may outlive the tests.
	goleak.VerifyTestMain(m)
}
