package cas_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/cas/castest"
	"github.com/golockers/locker/conformance"
)

// flawEnv is what a service of this process does wrong.
const flawEnv = "CASTEST_FLAW"

func TestStore(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(kind.ages)
			s.flaw = os.Getenv(flawEnv)
			castest.Run(t, castest.Harness{
				New: func(*testing.T) cas.Store { return watching{s.line()} },
				Cut: func(*testing.T) (cas.Store, conformance.Fault) {
					l := s.line()
					l.repeats = s.flaw == repeats
					return l, l
				},
			})
		})
	}
}

func TestBrokenStoresAreRejected(t *testing.T) {
	for _, c := range []struct{ flaw, test, says string }{
		{repeats, "lost", "it was written, and the error is certain that it was not"},
		{loadsStale, "fresh", "the version that a Load sees"},
		{versionsAgain, "versions", "comes back"},
		{creatorsWin, "creators", "so many of 8"},
		{keysMeet, "keys", "under the version that it has"},
	} {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStore$/^watched$/^"+c.test+"$")
		child.Env = append(os.Environ(), flawEnv+"="+c.flaw)
		out, err := child.CombinedOutput()
		assert.Error(t, err, c.flaw)
		assert.Contains(t, string(out), c.says, c.flaw)
	}
}
