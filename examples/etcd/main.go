// Command etcd guards a key of an etcd. The lock is in the same etcd here; it could
// be anywhere.
package main

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/examples/internal/story"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/etcdguard"
)

type order struct {
	cli   *clientv3.Client
	guard *etcdguard.Guard
}

func (o order) Raise(ctx context.Context, token fencing.Token) error {
	return o.guard.Raise(ctx, "order/42", token)
}

func (o order) Set(ctx context.Context, token fencing.Token, state string) error {
	_, err := o.guard.Commit(ctx, "order/42", token, clientv3.OpPut("orders/42/state", state))
	return err
}

func (o order) Get(ctx context.Context) (string, error) {
	resp, err := o.cli.Get(ctx, "orders/42/state")
	if err != nil || len(resp.Kvs) == 0 {
		return "", err
	}
	return string(resp.Kvs[0].Value), nil
}

func main() {
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"},
		DialTimeout: 5 * time.Second})
	story.Must(err)
	guard, err := etcdguard.New(cli, nil)
	story.Must(err)
	story.Tell(context.Background(), "etcd://localhost:2379", order{cli, guard})
}
