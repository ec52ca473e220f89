package lab_test

import (
	"strings"
	"testing"

	"github.com/golockers/locker/internal/host"
	"github.com/golockers/locker/internal/lab"
)

// recorder is how a test went that may fail without failing the test that looks at it.
type recorder struct {
	host.Host
	err error
}

// record runs fn as a test of its own, clean-up included.
func record(t *testing.T, fn func(t lab.TB)) *recorder {
	t.Helper()
	r := &recorder{Host: host.Host{Dir: t.TempDir()}}
	r.err = r.Do(func() { fn(r) })
	r.Close()
	return r
}

// said returns everything that the test has said.
func (r *recorder) said() string {
	all := append(r.Log(), r.Failures()...)
	if r.err != nil {
		all = append(all, r.err.Error())
	}
	return strings.Join(all, "\n")
}

func (r *recorder) skipped() bool {
	_, ok := r.err.(*host.SkipError) //nolint:errorlint // Do returns it as it is
	return ok
}
