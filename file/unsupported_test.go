//go:build !linux && !darwin

package file_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/file"
)

func TestWithoutFileLocksItSaysSo(t *testing.T) {
	_, err := file.New(t.TempDir())
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = file.DefaultDir()
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}
