package memory

import (
	"context"

	"github.com/golockers/locker/driver"
)

// Openers are the URL schemes of this package.
var Openers = driver.Openers{"memory": Open}

// Open is the [driver.Opener] of memory:// URLs. Its Backend belongs to one Client;
// to share locks between Clients, use [New].
func Open(_ context.Context, u *driver.URL, _ driver.Settings) (driver.Backend, error) {
	if u.User != nil || u.Hosts != nil || u.Path != "" && u.Path != "/" {
		return nil, u.Invalid("there is nothing to name in a process's memory: write memory://")
	}
	if err := u.Check(); err != nil {
		return nil, err
	}
	return New(), nil
}
