package file

import (
	"context"

	"github.com/golockers/locker/driver"
)

// Openers are the URL schemes of this package.
var Openers = driver.Openers{"file": Open}

// Open is the [driver.Opener] of file:// URLs; see [New] about the directory.
func Open(_ context.Context, u *driver.URL, _ driver.Settings) (driver.Backend, error) {
	switch {
	case u.User != nil || u.Hosts != nil:
		return nil, u.Invalid("there is no host, and no relative path: write the whole path after three slashes, " +
			"as in file:///var/lib/locks")
	case u.Path == "" || u.Path == "/":
		return nil, u.Invalid("the directory is missing: write it as in file:///var/lib/locks")
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
