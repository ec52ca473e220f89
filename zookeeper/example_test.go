package zookeeper_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/zookeeper"
)

func Example() {
	b, err := zookeeper.New([]string{"zk1:2181", "zk2:2181", "zk3:2181"}, &zookeeper.Options{
		SessionTimeout: 20 * time.Second,
		Prefix:         "/app/locks",
		Auth:           []zookeeper.Auth{{Scheme: "digest", Credentials: "app:secret"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	client, err := locker.New(b, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	fmt.Println(client.Guarantees().Order, client.Guarantees().ServerCrashes)

	_ = func(ctx context.Context) error {
		return locker.Do(ctx, client, "invoice/1234", func(ctx context.Context) error {
			var node zookeeper.Node
			if lease, held := locker.FromContext(ctx, "invoice/1234"); held {
				lease.As(&node) // where to look with other tools
			}
			return nil
		})
	}
	// Output: fifo 1
}
