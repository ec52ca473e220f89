// Package backends has every lock service of this repository in one import, but that of
// cas/nats, which is a module of its own, for programs that do not mind linking all the drivers:
//
//	client, err := backends.Open(ctx, os.Getenv("LOCKER_BACKEND"), nil)
//
// A program that wants one service imports that service's package and uses the
// Openers there.
package backends

import (
	"context"
	"maps"

	"github.com/golockers/locker"
	"github.com/golockers/locker/bridge"
	"github.com/golockers/locker/cas/kubernetes"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/file"
	"github.com/golockers/locker/memory"
	"github.com/golockers/locker/postgres"
	"github.com/golockers/locker/redlock"
	"github.com/golockers/locker/single"
	"github.com/golockers/locker/zookeeper"
)

// Openers are those of every package beside this one. A program that wants fewer or more
// gives [locker.Open] those that it wants.
var Openers = join(
	memory.Openers,
	file.Openers,
	single.Openers,
	redlock.Openers,
	postgres.Openers,
	etcd.Openers,
	zookeeper.Openers,
	kubernetes.Openers,
)

// Open is [bridge.Open] with all Openers: it opens the URL of any service, and two URLs with
// white space between them.
func Open(ctx context.Context, rawURL string, opts *locker.Options) (*locker.Client, error) {
	return bridge.Open(ctx, rawURL, opts, Openers)
}

func join(all ...driver.Openers) driver.Openers {
	joined := driver.Openers{}
	for _, o := range all {
		maps.Copy(joined, o)
	}
	return joined
}
