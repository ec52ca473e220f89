package etcdguard_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/guardtest"
)

func TestMarkAndOwnership(t *testing.T) {
	s := newScene(t, 1)
	ctx := within(t, soon)
	put := func(value string) clientv3.Op { return clientv3.OpPut("data", value) }
	guardtest.MarkAndOwnership(t, guardtest.Owned{
		NewHolder: func() *locker.Client {
			b, err := etcd.New(dial(t, s.Addrs()), nil)
			require.NoError(t, err)
			c := locker.New(b, &locker.Options{TTL: 8 * time.Second})
			t.Cleanup(func() { assert.NoError(t, c.Close()); assert.NoError(t, b.Close()) })
			return c
		},
		End: func(lease *locker.Lease) {
			var key etcd.Key
			require.True(t, lease.As(&key))
			_, err := s.admin.Revoke(ctx, key.Lease)
			require.NoError(t, err)
		},
		ByMark: func(token fencing.Token, value string) error {
			_, err := s.guard.Commit(ctx, "n", token, put(value))
			return err
		},
		Raise: s.guard.Raise,
		Own: func(lease *locker.Lease) (func(string) (bool, error), func(fencing.Token, string) (bool, error)) {
			held, err := etcd.Held(lease)
			require.NoError(t, err)
			commit := func(txn clientv3.Txn, value string) (bool, error) {
				resp, err := txn.If(held).Then(put(value)).Commit()
				return err == nil && resp.Succeeded, err
			}
			return func(value string) (bool, error) { return commit(s.admin.Txn(ctx), value) },
				func(token fencing.Token, value string) (bool, error) {
					return commit(s.guard.Txn(ctx, "n", token), value)
				}
		},
		Read: func() string { return s.value(t, "data") },
	})
}
