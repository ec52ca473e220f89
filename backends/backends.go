// Package backends has every lock service of this repository in one import, but that of
// cas/nats, which is a module of its own, for programs that do not mind linking all the drivers:
//
//	client, err := backends.Openers.Open(ctx, os.Getenv("LOCKER_BACKEND"), nil)
//
// A program that wants one service imports that service's package and uses the
// Openers there.
package backends

import (
	"maps"

	"github.com/golockers/locker"
	"github.com/golockers/locker/bridge"
	"github.com/golockers/locker/cas/kubernetes"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/file"
	"github.com/golockers/locker/memory"
	"github.com/golockers/locker/postgres"
	"github.com/golockers/locker/redlock"
	"github.com/golockers/locker/single"
	"github.com/golockers/locker/zookeeper"
)

// Openers opens the URLs of every package beside this one. It is to be read:
// a program that wants fewer or more makes a copy with [maps.Clone]. It opens two URLs
// in one string, too.
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

func join(all ...locker.Openers) bridge.Openers {
	joined := bridge.Openers{}
	for _, o := range all {
		maps.Copy(joined, o)
	}
	return joined
}
