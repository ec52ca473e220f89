//go:build linux || darwin || freebsd

package fileguard_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/golockers/locker/internal/lab"
)

func TestMain(m *testing.M) {
	lab.RunRole(roles)
	goleak.VerifyTestMain(m)
}
