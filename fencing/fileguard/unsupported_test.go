//go:build !linux && !darwin && !freebsd

package fileguard_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/fencing/fileguard"
)

func TestWithoutFileLocksItSaysSo(t *testing.T) {
	_, err := fileguard.New(filepath.Join(t.TempDir(), "f"))
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}
