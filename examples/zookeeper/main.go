// Command zookeeper guards a node of a ZooKeeper. The lock is in the same ZooKeeper
// here; it could be anywhere.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/examples/internal/story"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/zkguard"
)

type order struct {
	conn  *zk.Conn
	guard *zkguard.Guard
}

func (o order) Raise(ctx context.Context, token fencing.Token) error {
	return o.guard.Raise(ctx, "order/42", token)
}

func (o order) Set(ctx context.Context, token fencing.Token, state string) error {
	_, err := o.guard.Multi(ctx, "order/42", token,
		&zk.SetDataRequest{Path: "/order-42", Data: []byte(state), Version: -1})
	return err
}

func (o order) Get(context.Context) (string, error) {
	data, _, err := o.conn.Get("/order-42")
	return string(data), err
}

func main() {
	conn, _, err := zk.Connect([]string{"localhost:2181"}, 10*time.Second, zk.WithLogInfo(false))
	story.Must(err)
	if _, err = conn.Create("/order-42", nil, 0, zk.WorldACL(zk.PermAll)); !errors.Is(err, zk.ErrNodeExists) {
		story.Must(err)
	}
	guard, err := zkguard.New(conn, nil)
	story.Must(err)
	story.Tell(context.Background(), "zookeeper://localhost:2181?ttl=10s", order{conn, guard})
}
