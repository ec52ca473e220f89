// Package backends provides every lock service of this repository except cas/nats in one import, for
// programs that do not mind linking all the drivers:
//
//	client, err := backends.Open(ctx, os.Getenv("LOCKER_BACKEND"), nil)
//
// A program that wants one service imports that service's package and uses its Openers.
package backends

import (
	"context"
	"maps"

	"github.com/golockers/locker"
	"github.com/golockers/locker/bridge"
	"github.com/golockers/locker/cas/kubernetes"
	"github.com/golockers/locker/cas/mysql"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/file"
	"github.com/golockers/locker/memory"
	"github.com/golockers/locker/postgres"
	"github.com/golockers/locker/redlock"
	"github.com/golockers/locker/single"
	"github.com/golockers/locker/zookeeper"
)

// Openers are the Openers of all these packages. A program that wants others passes those to
// [locker.Open].
var Openers = join(
	memory.Openers,
	file.Openers,
	single.Openers,
	redlock.Openers,
	postgres.Openers,
	etcd.Openers,
	zookeeper.Openers,
	kubernetes.Openers,
	mysql.Openers,
)

// Open is [bridge.Open] with all Openers: it opens the URL of any service, or two URLs separated by
// white space.
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
