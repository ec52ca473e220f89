package fencingproof_test

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/zkguard"
)

// zooKeeperTarget is a node of a ZooKeeper.
type zooKeeperTarget struct {
	conn     *zk.Conn
	guard    *zkguard.Guard
	path     string
	resource []string // none: without a guard
}

// noLog keeps the driver quiet, which tells of each connection.
type noLog struct{}

func (noLog) Printf(string, ...any) {}

func openZooKeeper(addr, key string, resource []string) (target, error) {
	// The session outlives the pause: this is about the write, not about who sends it.
	conn, _, err := zk.Connect([]string{addr}, time.Minute, zk.WithLogger(noLog{}))
	if err != nil {
		return nil, err
	}
	z := &zooKeeperTarget{conn: conn, path: "/" + key, resource: resource}
	if z.guard, err = zkguard.New(conn, nil); err != nil {
		return nil, err
	}
	_, err = conn.Create(z.path, nil, 0, zk.WorldACL(zk.PermAll))
	if errors.Is(err, zk.ErrNodeExists) {
		err = nil
	}
	return z, err
}

func (z *zooKeeperTarget) write(ctx context.Context, value string) error {
	token, err := fencing.FromContext(ctx)
	if err != nil {
		return err
	}
	if len(z.resource) == 0 {
		_, err = z.conn.Set(z.path, []byte(value), -1)
	} else {
		_, err = z.guard.Multi(ctx, z.resource[0], token,
			&zk.SetDataRequest{Path: z.path, Data: []byte(value), Version: -1})
	}
	return err
}

func (z *zooKeeperTarget) raise(ctx context.Context) error {
	token, err := fencing.FromContext(ctx)
	if err != nil {
		return err
	}
	return z.guard.Raise(ctx, z.resource[0], token)
}

func (z *zooKeeperTarget) read(context.Context) (string, error) {
	data, _, err := z.conn.Get(z.path)
	return string(data), err
}

func (z *zooKeeperTarget) close() { z.conn.Close() }
