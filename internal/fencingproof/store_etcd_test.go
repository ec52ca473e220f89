package fencingproof_test

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/etcdguard"
)

// openEtcd opens a key of an etcd.
func openEtcd(addr, key, resource string) (*target, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{addr}, Logger: zap.NewNop(),
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	guard, err := etcdguard.New(client, nil)
	return &target{
		write: func(ctx context.Context, token fencing.Token, value string) (err error) {
			if resource == "" {
				_, err = client.Put(ctx, key, value)
			} else {
				_, err = guard.Commit(ctx, resource, token, clientv3.OpPut(key, value))
			}
			return err
		},
		raise: func(ctx context.Context, token fencing.Token) error { return guard.Raise(ctx, resource, token) },
		read: func(ctx context.Context) (string, error) {
			resp, err := client.Get(ctx, key)
			if err != nil || len(resp.Kvs) == 0 {
				return "", err
			}
			return string(resp.Kvs[0].Value), nil
		},
		close: func() { _ = client.Close() },
	}, err
}
