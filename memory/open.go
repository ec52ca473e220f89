package memory

import (
	"context"

	"github.com/golockers/locker"
)

// Openers are the URL schemes of this package.
var Openers = locker.Openers{
	"memory": Open,
}

// Open is the [locker.Opener] of memory:// URLs. The Backend that it makes
// belongs to one Client; Clients that share locks are made with [New].
func Open(_ context.Context, u *locker.URL, _ locker.Options) (locker.Backend, error) {
	if u.User != nil || u.Hosts != nil || u.Path != "" && u.Path != "/" {
		return nil, u.Invalid("there is nothing to name in a process's memory: write memory://")
	}
	if err := u.Check(); err != nil {
		return nil, err
	}
	return New(), nil
}
