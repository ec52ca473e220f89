package file_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/file"
	"github.com/golockers/locker/internal/lab"
)

func TestDirectoryInUserSpaceIsRefused(t *testing.T) {
	dir := lab.MountFUSE(t)
	_, err := file.New(dir)
	assert.EqualError(t, err, "cannot keep lock files in "+dir+": it is on a file system of type FUSE, where file "+
		"locks are not kept by this host alone: choose one on a local disk: unsupported operation")
}
