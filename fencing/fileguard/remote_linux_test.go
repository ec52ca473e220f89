package fileguard_test

import (
	"errors"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/fencing/fileguard"
	"github.com/golockers/locker/internal/lab"
)

func TestFileInUserSpaceIsRefused(t *testing.T) {
	dir := lab.MountFUSE(t)
	path := filepath.Join(dir, "f")
	_, err := fileguard.New(path)
	assert.EqualError(t, err, "fileguard: "+strconv.Quote(path)+": directory "+dir+": it is on a file system of type FUSE, "+
		"where file locks are not kept by this host alone: choose one on a local disk: unsupported operation")
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}
