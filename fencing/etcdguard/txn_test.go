package etcdguard_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/fencing"
)

// A mark that moved although nothing was written would refuse an earlier
// holder for nothing; a write without the mark would let one pass.
func TestMarkMovesWithAWriteOrNotAtAll(t *testing.T) {
	s := newScene(t, 1)
	ctx := within(t, soon)
	is := func(value string) clientv3.Cmp { return clientv3.Compare(clientv3.Value("data"), "=", value) }
	put := func(value string) clientv3.Op { return clientv3.OpPut("data", value) }
	_, err := s.admin.Put(ctx, "data", "old")
	require.NoError(t, err)
	mark := func() fencing.Token {
		m, err := s.guard.Mark(ctx, "r")
		require.NoError(t, err)
		return m
	}

	resp, err := s.guard.Txn(ctx, "r", 5).If(is("else")).Then(put("new")).Else(clientv3.OpGet("data")).Commit()
	require.NoError(t, err)
	assert.False(t, resp.Succeeded)
	require.Len(t, resp.Responses, 1)
	assert.Equal(t, "old", string(resp.Responses[0].GetResponseRange().Kvs[0].Value))
	assert.Zero(t, mark())

	resp, err = s.guard.Txn(ctx, "r", 4).If(is("old"), clientv3.Compare(clientv3.Version("none"), "=", 0)).
		Then(put("new"), clientv3.OpGet("data")).Else(put("wrong")).Commit()
	require.NoError(t, err)
	assert.True(t, resp.Succeeded)
	require.Len(t, resp.Responses, 2)
	assert.Equal(t, "new", string(resp.Responses[1].GetResponseRange().Kvs[0].Value))
	assert.NotZero(t, resp.Header.Revision)
	assert.EqualValues(t, 4, mark())

	resp, err = s.guard.Txn(ctx, "r", 6).
		If(is("old")).
		Then(put("wrong")).
		Else(put("other"), clientv3.OpGet("data")).
		Commit()
	require.NoError(t, err)
	assert.False(t, resp.Succeeded)
	require.Len(t, resp.Responses, 2)
	assert.Equal(t, "other", string(resp.Responses[1].GetResponseRange().Kvs[0].Value))
	assert.EqualValues(t, 6, mark(), "there was a write in Else")

	inner := clientv3.OpTxn([]clientv3.Cmp{is("other")}, []clientv3.Op{put("nested")}, nil)
	resp, err = s.guard.Txn(ctx, "r", 7).If(is("old")).Else(inner).Commit()
	require.NoError(t, err)
	require.Len(t, resp.Responses, 1)
	assert.True(t, resp.Responses[0].GetResponseTxn().Succeeded)
	assert.Equal(t, "nested", s.value(t, "data"))
	assert.EqualValues(t, 7, mark())

	before := s.revision(t)
	for _, cmp := range []clientv3.Cmp{is("nested"), is("else")} {
		_, err = s.guard.Txn(ctx, "r", 6).If(cmp).Then(put("late")).Else(put("late")).Commit()
		require.ErrorIs(t, err, fencing.ErrStale, "whatever the caller compares")
	}
	assert.Equal(t, before, s.revision(t))
}
