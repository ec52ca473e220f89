//go:build !linux && !darwin && !freebsd

package localfile_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/internal/localfile"
)

func TestWithoutFileLocksItSaysSo(t *testing.T) {
	assert.ErrorIs(t, localfile.Flock(nil, localfile.Exclusive), errors.ErrUnsupported)
	_, err := localfile.RemoteKind(t.TempDir())
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}
