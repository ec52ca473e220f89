//go:build linux || darwin

package file_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/golockers/locker/internal/lab"
)

func TestMain(m *testing.M) {
	lab.RunRole(roles)
	goleak.VerifyTestMain(m)
}
