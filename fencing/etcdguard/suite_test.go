package etcdguard_test

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/guardtest"
)

func TestSuite(t *testing.T) {
	s := newScene(t, 1)
	guardtest.Run(t, func(t *testing.T) guardtest.Store {
		client := dial(t, s.Addrs())
		g := newGuard(t, client, nil)
		return guardtest.Store{
			Write: func(ctx context.Context, r string, token fencing.Token, value string) error {
				_, err := g.Commit(ctx, r, token, clientv3.OpPut("value/"+r, value))
				return err
			},
			Raise: g.Raise,
			Read: func(ctx context.Context, r string) (string, error) {
				resp, err := client.Get(ctx, "value/"+r)
				if err != nil || len(resp.Kvs) == 0 {
					return "", err
				}
				return string(resp.Kvs[0].Value), nil
			},
			Mark: g.Mark,
		}
	})
}
