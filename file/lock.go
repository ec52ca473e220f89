package file

import (
	"errors"
	"io/fs"
	"os"

	"github.com/golockers/locker/internal/localfile"
	"github.com/golockers/locker/internal/oneline"
)

// openLocked opens the file at path, creates it if it is missing, and locks it.
func (b *Backend) openLocked(path string, how localfile.How) (*os.File, error) {
	return localfile.Open(path, how, func() (*os.File, error) {
		f, err := b.create(path)
		if errors.Is(err, fs.ErrNotExist) {
			if _, gone := os.Stat(b.dir); gone != nil {
				return nil, noDir(b.dir)
			}
			err = fs.ErrExist // it existed a moment ago
		}
		return f, err
	})
}

// create creates an empty file at path. The error matches fs.ErrExist if the file exists, and
// fs.ErrNotExist if the directory or the new file is gone.
func (b *Backend) create(path string) (*os.File, error) {
	// A user who may create files in the directory may lock. A user who may only read it may not,
	// because opening a file is enough to lock it.
	const own fs.FileMode = 0o600
	mode := own | (b.dirMode&0o022)*3
	if mode == own {
		return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|localfile.OpenFlags, own)
	}
	// The file appears with its final permissions, whatever the umask: otherwise
	// another user who opens it too early would be refused.
	f, err := os.CreateTemp(b.dir, ".new-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	if err := oneline.Join(f.Chmod(mode), f.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(f.Name(), path); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|localfile.OpenFlags, 0)
}
