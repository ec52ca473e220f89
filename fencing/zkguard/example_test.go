package zkguard_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/zkguard"
	"github.com/golockers/locker/zookeeper"
)

// It needs a ZooKeeper on port 2181, as started by: zkServer.sh start
func Example() {
	if err := rotate("127.0.0.1:2181"); err != nil {
		log.Fatal(err)
	}
}

// rotate writes a new version of a node to ZooKeeper, under a lock that may be
// in any service; here it is in the same ZooKeeper.
func rotate(addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	backend, err := zookeeper.New([]string{addr}, &zookeeper.Options{SessionTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	defer func() { _ = backend.Close() }()
	locks := locker.New(backend, nil)
	defer func() { _ = locks.Close() }()
	fenced, err := fencing.WithTokens(locks)
	if err != nil {
		return err
	}
	conn, _, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		return err
	}
	defer conn.Close()
	guard, err := zkguard.New(conn, nil)
	if err != nil {
		return err
	}

	err = fencing.Do(ctx, fenced, "billing/key", func(ctx context.Context) error {
		token, err := fencing.TokenFor(ctx, "billing/key")
		if err != nil {
			return err
		}
		// From here on, nobody who held the lock before can write.
		if _, err := guard.Multi(ctx, "billing/key", token); err != nil {
			return err
		}
		_, err = guard.Multi(ctx, "billing/key", token,
			&zk.CreateRequest{Path: "/billing-key", Data: []byte("v2"), Acl: zk.WorldACL(zk.PermAll)},
			&zk.CreateRequest{Path: "/billing-key/rotated", Data: []byte("today"), Acl: zk.WorldACL(zk.PermAll)})
		return err
	})
	if err != nil {
		return err
	}

	// A holder from long ago wakes up.
	_, err = guard.Multi(ctx, "billing/key", 1,
		&zk.SetDataRequest{Path: "/billing-key", Data: []byte("v1"), Version: -1})
	fmt.Println(err)
	data, _, err := conn.Get("/billing-key")
	if err != nil {
		return err
	}
	fmt.Printf("%s\n", data)
	return nil
}
