package etcdguard_test

import (
	"context"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/etcdguard"
)

// It needs an etcd on port 2379, as started by: etcd
func Example() {
	if err := rotate("127.0.0.1:2379"); err != nil {
		log.Fatal(err)
	}
}

// rotate writes a new version of a key to etcd, under a lock that may be in
// any service; here it is in the same etcd.
func rotate(addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{addr},
		DialTimeout: 5 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
	})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	backend, err := etcd.New(client, nil)
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
	guard, err := etcdguard.New(client, nil)
	if err != nil {
		return err
	}

	err = fencing.Do(ctx, fenced, "billing/key", func(ctx context.Context) error {
		token, err := fencing.TokenFor(ctx, "billing/key")
		if err != nil {
			return err
		}
		// From here on, nobody who held the lock before can write.
		if _, err := guard.Commit(ctx, "billing/key", token); err != nil {
			return err
		}
		_, err = guard.Commit(ctx, "billing/key", token,
			clientv3.OpPut("billing/key", "v2"),
			clientv3.OpPut("billing/key/rotated", "today"))
		return err
	})
	if err != nil {
		return err
	}

	// A holder from long ago wakes up.
	_, err = guard.Commit(ctx, "billing/key", 1, clientv3.OpPut("billing/key", "v1"))
	fmt.Println(err)
	resp, err := client.Get(ctx, "billing/key")
	if err != nil {
		return err
	}
	fmt.Printf("%s\n", resp.Kvs[0].Value)
	return nil
}
