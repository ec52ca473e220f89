//go:build linux || darwin

package file_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/file"
	"github.com/golockers/locker/internal/lab"
)

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	look := newBackend(t, dir)
	conformance.Run(t, conformance.Harness{
		TTL: 500 * time.Millisecond, // nothing is far away
		New: func(ct conformance.T) driver.Backend {
			b, err := file.New(dir)
			if err != nil {
				ct.Errorf("%v", err)
				ct.FailNow()
			}
			return b
		},
		Names: []string{".", "..", "a.lock", "A.lock", "%41.lock", "~"},
		Delete: func(ct conformance.T, name string) {
			if err := os.Remove(filepath.Join(dir, file.FileName(name))); err != nil {
				ct.Errorf("%v", err)
			}
		},
		Victim: func(_ conformance.T, name string, _ time.Duration) func() {
			child := lab.StartChild(t, "hold", dir, name)
			child.Expect(t, "holding", patience)
			return child.Kill
		},
		Left: func(ct conformance.T, name string) []string {
			st, err := look.Inspect(ct.Context(), name)
			if err != nil {
				return []string{err.Error()}
			}
			if st.Held {
				return []string{"a lock of " + st.Label}
			}
			return nil
		},
		URL:  "file://" + dir,
		Open: conformance.OpenWith(file.Openers),
		Unproven: map[string]string{
			"histories-delete": "who waits for a file that is deleted and made again waits until its old holder has noticed",
			"shared-min-hold": "a MinHold of a sharer beside others is removed when nobody shares the lock any more: Undo says so, " +
				"and histories do not ask it again",
		},
	})
}
