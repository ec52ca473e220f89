package label_test

import (
	"strings"
	"testing"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/label"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/memory"
	"github.com/stretchr/testify/assert"
)

func TestTheEngineTakesEachLabel(t *testing.T) {
	for _, program := range []string{"a\x1b[2Jb", "\xff", strings.Repeat("ü", 100), strings.Repeat("x", 200)} {
		l := label.Of([]string{program}, locker.MaxLabelLen)
		assert.LessOrEqual(t, len(l), locker.MaxLabelLen)
		c := locktest.Must(locker.New(memory.New(), &locker.Options{Label: l}))
		_, err := c.TryLock(t.Context(), "a")
		assert.NoError(t, err, "%q", l)
		assert.NoError(t, c.Close())
	}
	assert.Regexp(t, `^backup@.+\[\d+\]$`, label.Of([]string{"/usr/bin/backup", "-v"}, locker.MaxLabelLen))
	assert.Contains(t, label.Of(nil, locker.MaxLabelLen), "unknown-program@")
}
