//go:build linux || darwin

package file_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/golockers/locker/internal/testserver"
)

func TestMain(m *testing.M) {
	testserver.RunRole(roles)
	goleak.VerifyTestMain(m)
}
