package etcdguard_test

import (
	"context"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
)

// By ownership, a lock in the same etcd needs no guard. It needs an etcd on
// port 2379, as started by: etcd
func Example_ownership() {
	if err := rotateByOwnership("127.0.0.1:2379"); err != nil {
		log.Fatal(err)
	}
}

func rotateByOwnership(addr string) error {
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

	return locker.Do(ctx, locks, "billing/key", func(ctx context.Context, lease *locker.Lease) error {
		held, err := etcd.Held(lease)
		if err != nil {
			return err
		}
		resp, err := client.Txn(ctx).If(held).Then(clientv3.OpPut("billing/key", "v3")).Commit()
		if err != nil {
			return err
		}
		if !resp.Succeeded {
			return fmt.Errorf("billing/key: %w", locker.ErrLost)
		}
		return nil
	})
}
