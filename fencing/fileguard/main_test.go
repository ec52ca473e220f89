//go:build linux || darwin || freebsd

package fileguard_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/golockers/locker/internal/testserver"
)

func TestMain(m *testing.M) {
	testserver.RunRole(roles)
	goleak.VerifyTestMain(m)
}
