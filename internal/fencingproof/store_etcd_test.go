package fencingproof_test

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/etcdguard"
)

// etcdTarget is a key of an etcd.
type etcdTarget struct {
	client   *clientv3.Client
	guard    *etcdguard.Guard
	key      string
	resource []string // none: without a guard
}

func openEtcd(addr, key string, resource []string) (target, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{addr}, Logger: zap.NewNop(),
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	guard, err := etcdguard.New(client, nil)
	return &etcdTarget{client, guard, key, resource}, err
}

func (e *etcdTarget) write(ctx context.Context, value string) error {
	token, err := fencing.FromContext(ctx)
	if err != nil {
		return err
	}
	if len(e.resource) == 0 {
		_, err = e.client.Put(ctx, e.key, value)
	} else {
		_, err = e.guard.Commit(ctx, e.resource[0], token, clientv3.OpPut(e.key, value))
	}
	return err
}

func (e *etcdTarget) raise(ctx context.Context) error {
	token, err := fencing.FromContext(ctx)
	if err != nil {
		return err
	}
	return e.guard.Raise(ctx, e.resource[0], token)
}

func (e *etcdTarget) read(ctx context.Context) (string, error) {
	resp, err := e.client.Get(ctx, e.key)
	if err != nil || len(resp.Kvs) == 0 {
		return "", err
	}
	return string(resp.Kvs[0].Value), nil
}

func (e *etcdTarget) close() { _ = e.client.Close() }
