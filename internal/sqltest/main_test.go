//go:build unix

package sqltest_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/golockers/locker/internal/lab"
)

func TestMain(m *testing.M) {
	lab.RunRole(lab.Roles{"become": become})
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		removeTemplates()
		os.Exit(code)
	}))
}
