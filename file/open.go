package file

import (
	"context"
	"fmt"

	"github.com/golockers/locker"
)

// Openers are the URL schemes of this package.
var Openers = locker.Openers{
	"file": Open,
}

// Open is the [locker.Opener] of file:// URLs; see [New] about the directory.
func Open(_ context.Context, u *locker.URL, _ locker.Options) (locker.Backend, error) {
	switch {
	case u.User != nil || u.Hosts != nil:
		return nil, fmt.Errorf("%w: %s: there is no host, and no relative path: write the whole path after three slashes, as in file:///var/lib/locks", locker.ErrInvalid, u)
	case u.Path == "" || u.Path == "/":
		return nil, fmt.Errorf("%w: %s: the directory is missing: write it as in file:///var/lib/locks", locker.ErrInvalid, u)
	}
	if err := u.Check(); err != nil {
		return nil, err
	}
	b, err := New(u.Path)
	if err != nil {
		return nil, err
	}
	return b, nil
}
