package zkguard_test

import (
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/guardtest"
	"github.com/golockers/locker/zookeeper"
)

func TestMarkAndOwnership(t *testing.T) {
	s := newScene(t)
	ctx := within(t, soon)
	put(t, s.admin, "/data", "")
	nodeOf := func(lease *locker.Lease) string {
		var node zookeeper.Node
		require.True(t, lease.As(&node))
		return node.Path
	}
	guardtest.MarkAndOwnership(t, guardtest.Owned{
		NewHolder: func() *locker.Client {
			b, err := zookeeper.New([]string{s.server.Addr()}, nil)
			require.NoError(t, err)
			c := locker.New(b, nil)
			t.Cleanup(func() { assert.NoError(t, c.Close()); assert.NoError(t, b.Close()) })
			return c
		},
		End: func(lease *locker.Lease) { require.NoError(t, s.admin.Delete(nodeOf(lease), -1)) },
		ByMark: func(token fencing.Token, value string) error {
			_, err := s.guard.Multi(ctx, "n", token, set("/data", value))
			return err
		},
		Raise: s.guard.Raise,
		Own: func(lease *locker.Lease) (func(string) (bool, error), func(fencing.Token, string) (bool, error)) {
			held := &zk.CheckVersionRequest{Path: nodeOf(lease), Version: -1}
			written := func(_ []zk.MultiResponse, err error) (bool, error) {
				if errors.Is(err, zk.ErrNoNode) { // there is no other that can be missing
					return false, nil
				}
				return err == nil, err
			}
			return func(value string) (bool, error) { return written(s.admin.Multi(held, set("/data", value))) },
				func(token fencing.Token, value string) (bool, error) {
					return written(s.guard.Multi(ctx, "n", token, held, set("/data", value)))
				}
		},
		Read: func() string { data, _ := look(t, s.admin, "/data"); return data },
	})
}
