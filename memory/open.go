package memory

import (
	"context"
	"fmt"

	"github.com/golockers/locker"
)

var _ locker.Opener = Open

// Open is the [locker.Opener] of memory:// URLs. The Backend that it makes
// belongs to one Client; Clients that share locks are made with [New].
func Open(_ context.Context, u *locker.URL, _ locker.Options) (locker.Backend, error) {
	if u.User != nil || u.Hosts != nil || u.Path != "" && u.Path != "/" {
		return nil, fmt.Errorf("%w: %s: there is nothing to name in a process's memory: write memory://", locker.ErrURL, u)
	}
	if err := u.Check(); err != nil {
		return nil, err
	}
	return New(), nil
}
