package fencingproof_test

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/zkguard"
)

// noLog keeps the driver quiet, which tells of each connection.
type noLog struct{}

func (noLog) Printf(string, ...any) {}

// openZooKeeper opens a node of a ZooKeeper, which it makes if it is missing.
func openZooKeeper(addr, key, resource string) (*target, error) {
	// The session outlives the pause: this is about the write, not about who sends it.
	conn, _, err := zk.Connect([]string{addr}, time.Minute, zk.WithLogger(noLog{}))
	if err != nil {
		return nil, err
	}
	guard, err := zkguard.New(conn, nil)
	if err != nil {
		return nil, err
	}
	path := "/" + key
	_, err = conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	if errors.Is(err, zk.ErrNodeExists) {
		err = nil
	}
	return &target{
		write: func(ctx context.Context, token fencing.Token, value string) (err error) {
			if resource == "" {
				_, err = conn.Set(path, []byte(value), -1)
			} else {
				_, err = guard.Multi(ctx, resource, token,
					&zk.SetDataRequest{Path: path, Data: []byte(value), Version: -1})
			}
			return err
		},
		raise: func(ctx context.Context, token fencing.Token) error { return guard.Raise(ctx, resource, token) },
		read: func(context.Context) (string, error) {
			data, _, err := conn.Get(path)
			return string(data), err
		},
		close: conn.Close,
	}, err
}
