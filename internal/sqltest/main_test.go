//go:build unix

package sqltest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/golockers/locker/internal/lab"
)

func TestMain(m *testing.M) {
	lab.RunRole(nil)
	goleak.VerifyTestMain(m)
}
