package etcdguard_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/etcdguard"
	"github.com/golockers/locker/internal/lab"
)

func TestMarkMovesWithoutOperationsAndWithReads(t *testing.T) {
	s := newScene(t, 1)
	ctx := within(t, soon)
	resp, err := s.guard.Commit(ctx, "r", 5)
	require.NoError(t, err)
	assert.Empty(t, resp.Responses)
	_, err = s.guard.Commit(ctx, "r", 4, clientv3.OpGet("data"))
	require.ErrorIs(t, err, fencing.ErrStale, "what a late holder reads is refused, too")
	resp, err = s.guard.Commit(ctx, "r", 6, clientv3.OpGet("data"), clientv3.OpGet("fencing/1/mark/r"))
	require.NoError(t, err)
	require.Len(t, resp.Responses, 2)
	assert.Empty(t, resp.Responses[0].GetResponseRange().Kvs)
	_, err = s.guard.Commit(ctx, "r", 5)
	require.ErrorIs(t, err, fencing.ErrStale)
}

// A prefix may go on where another's ends.
func TestPrefixesDoNotMeet(t *testing.T) {
	s := newScene(t, 1)
	ctx := within(t, soon)
	deeper := newGuard(t, s.admin, &etcdguard.Options{Prefix: "fencing/1/mark"})
	require.NoError(t, deeper.Raise(ctx, "x", 100))
	for _, name := range []string{"1/mark/x", "x", "mark/x"} {
		mark, err := s.guard.Mark(ctx, name)
		require.NoError(t, err)
		assert.Zero(t, mark)
	}
}

func TestBadInputIsToldAtOnce(t *testing.T) {
	s := newScene(t, 1)
	ctx := within(t, soon)
	before := s.revision(t)
	commit := func(ops ...clientv3.Op) func() error {
		return func() error { _, err := s.guard.Commit(ctx, "r", 1, ops...); return err }
	}
	guardOn := func(kv clientv3.KV, prefix string) func() error {
		return func() error { _, err := etcdguard.New(kv, &etcdguard.Options{Prefix: prefix}); return err }
	}
	hidden := clientv3.OpTxn(nil, nil, []clientv3.Op{clientv3.OpPut("fencing/1/x", "")})
	for what, call := range map[string]func() error{
		"empty operation":   commit(clientv3.Op{}),
		"its own mark":      commit(clientv3.OpPut("fencing/1/mark/r", "0")),
		"another's mark":    commit(clientv3.OpDelete("fencing/1/mark/q")),
		"all keys":          commit(clientv3.OpDelete("", clientv3.WithPrefix())),
		"all from a key on": commit(clientv3.OpDelete("f", clientv3.WithFromKey())),
		"a range":           commit(clientv3.OpDelete("fencing/0", clientv3.WithRange("fencing/1/n"))),
		"one key twice":     commit(clientv3.OpPut("k", "1"), clientv3.OpPut("k", "2")),
		"no key":            commit(clientv3.OpPut("", "1")),
		"hidden in a transaction": func() error {
			_, err := s.guard.Txn(ctx, "r", 1).Else(hidden).Commit()
			return err
		},
		"no client":   guardOn((*clientv3.Client)(nil), ""),
		"nil":         guardOn(nil, ""),
		"slash":       guardOn(s.admin, "/a"),
		"long prefix": guardOn(s.admin, strings.Repeat("a", 300)),
	} {
		err := call()
		require.ErrorIs(t, err, locker.ErrInvalid, what)
		require.NotErrorIs(t, err, locker.ErrUnavailable, what)
		assert.NotContains(t, err.Error(), "\n", what)
	}
	assert.Equal(t, before, s.revision(t), "nothing at all was written")
	// What lies close by is the caller's.
	for _, op := range []clientv3.Op{
		clientv3.OpPut("fencing/1", ""), clientv3.OpPut("fencing/10", ""), clientv3.OpPut("fencing/2/x", ""),
		clientv3.OpDelete("a", clientv3.WithRange("fencing/1/")),
		clientv3.OpDelete("fencing/10", clientv3.WithFromKey()),
		clientv3.OpDelete("b", clientv3.WithPrefix()),
	} {
		_, err := s.guard.Commit(ctx, "r", 1, op)
		require.NoError(t, err, "%q", op.KeyBytes())
	}
}

func TestAsManyOperationsAsEtcdAllows(t *testing.T) {
	s := newScene(t, 1, lab.WithEtcdFlag("max-txn-ops", "10"))
	ops := func(n int) (ops []clientv3.Op) {
		for i := range n {
			ops = append(ops, clientv3.OpPut(fmt.Sprint("k", i), "v"))
		}
		return ops
	}
	resp, err := s.guard.Commit(within(t, soon), "r", 1, ops(8)...)
	require.NoError(t, err)
	assert.Len(t, resp.Responses, 8)
	_, err = s.guard.Commit(within(t, soon), "r", 2, ops(9)...)
	require.ErrorIs(t, err, locker.ErrInvalid)
	require.NotErrorIs(t, err, fencing.ErrUnknown)
	assert.Contains(t, err.Error(), "max-txn-ops")
	mark, err := s.guard.Mark(within(t, soon), "r")
	require.NoError(t, err)
	assert.EqualValues(t, 1, mark)
}

func TestMarkThatNoGuardHasWrittenIsNotBelieved(t *testing.T) {
	s := newScene(t, 1)
	for _, text := range []string{"7", "0000000000000000000x", "99999999999999999999"} {
		_, err := s.admin.Put(within(t, soon), "fencing/1/mark/r", text)
		require.NoError(t, err)
		_, err = s.guard.Commit(within(t, soon), "r", 5, clientv3.OpPut("data", "x"))
		require.ErrorContains(t, err, "no guard has written")
		_, err = s.guard.Mark(within(t, soon), "r")
		require.ErrorContains(t, err, "no guard has written")
		assert.Empty(t, s.value(t, "data"))
	}
}

func TestGuardOnAPartOfTheKeys(t *testing.T) {
	s := newScene(t, 1)
	part := newGuard(t, namespace.NewKV(s.admin.KV, "app/"), nil)
	ctx := within(t, soon)
	_, err := part.Commit(ctx, "r", 7, clientv3.OpPut("data", "x"))
	require.NoError(t, err)
	assert.Equal(t, "x", s.value(t, "app/data"))
	_, err = part.Commit(ctx, "r", 6, clientv3.OpPut("data", "y"))
	require.ErrorIs(t, err, fencing.ErrStale)
	_, err = s.guard.Commit(ctx, "r", 6)
	require.NoError(t, err, "it is another mark")
}
