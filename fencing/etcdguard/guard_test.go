package etcdguard_test

import (
	"fmt"
	"math"
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

func TestTokensAreAdmittedByNumber(t *testing.T) {
	s := newScene(t, 1)
	ctx := within(t, soon)
	mark, err := s.guard.Mark(ctx, "r")
	require.NoError(t, err)
	assert.Zero(t, mark)
	// As text without leading zeroes, 10 is before 9. The numbers above 2⁶³ are
	// no int64, those around 2⁵³ no float64.
	rising := []fencing.Token{9, 10, 99, 100, 1<<53 + 1, 1<<53 + 2, 1 << 63, math.MaxUint64}
	for i, token := range rising {
		for range 2 { // equal: the same holder goes on
			resp, err := s.guard.Commit(ctx, "r", token, clientv3.OpPut("data", token.String()))
			require.NoError(t, err)
			assert.True(t, resp.Succeeded)
			require.Len(t, resp.Responses, 1, "of the caller's own operation")
			assert.NotNil(t, resp.Responses[0].GetResponsePut())
			assert.NotZero(t, resp.Header.Revision)
		}
		for _, lower := range append([]fencing.Token{1}, rising[:i]...) {
			before := s.revision(t)
			resp, err := s.guard.Commit(ctx, "r", lower, clientv3.OpPut("data", "late"))
			require.Nil(t, resp)
			require.ErrorIs(t, err, fencing.ErrStale)
			var stale *fencing.StaleError
			require.ErrorAs(t, err, &stale)
			assert.Equal(t, fencing.StaleError{Resource: "r", Token: lower, Mark: token}, *stale)
			require.NotErrorIs(t, err, locker.ErrUnavailable)
			require.NotErrorIs(t, err, fencing.ErrUnknown)
			assert.Equal(t, before, s.revision(t), "nothing at all was written")
		}
		mark, err := s.guard.Mark(ctx, "r")
		require.NoError(t, err)
		assert.Equal(t, token, mark)
		assert.Equal(t, token.String(), s.value(t, "data"))
	}
}

func TestNoTokenIsNotALowOne(t *testing.T) {
	s := newScene(t, 1)
	before := s.revision(t)
	_, err := s.guard.Commit(within(t, soon), "r", 0, clientv3.OpPut("data", "x"))
	require.ErrorIs(t, err, fencing.ErrMissing)
	require.NotErrorIs(t, err, fencing.ErrStale)
	assert.Equal(t, before, s.revision(t))
}

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

func TestForgottenMarkLetsAnyTokenPass(t *testing.T) {
	s := newScene(t, 1)
	ctx := within(t, soon)
	_, err := s.guard.Commit(ctx, "r", 5)
	require.NoError(t, err)
	require.NoError(t, s.guard.Forget(ctx, "r"))
	require.NoError(t, s.guard.Forget(ctx, "r"))
	_, err = s.guard.Commit(ctx, "r", 4)
	require.NoError(t, err)
}

// A name that is not encoded injectively would share its mark with another.
func TestNamesDoNotMeet(t *testing.T) {
	s := newScene(t, 1)
	ctx := within(t, soon)
	names := []string{
		"a", "A", "a/b", "a%2Fb", "a%252Fb", "/", "//", ".", "..", "../x", "%", "\x00", "a\x00",
		" ", "ä", "日本", "\n",
		strings.Repeat(
			"x",
			fencing.MaxNameLen,
		), strings.Repeat("/", fencing.MaxNameLen), strings.Repeat("ü", fencing.MaxNameLen/2),
		"1/mark/x",
	}
	for i, name := range names {
		_, err := s.guard.Commit(ctx, name, fencing.Token(i+1))
		require.NoError(t, err, "%q", name)
	}
	for i, name := range names {
		mark, err := s.guard.Mark(ctx, name)
		require.NoError(t, err)
		assert.Equal(t, fencing.Token(i+1), mark, "%q", name)
	}
	// Nor do those of a prefix that goes on where another's ends.
	deeper := newGuard(t, s.admin, &etcdguard.Options{Prefix: "fencing/1/mark"})
	_, err := deeper.Commit(ctx, "x", 100)
	require.NoError(t, err)
	for _, name := range []string{"1/mark/x", "x", "mark/x"} {
		mark, err := s.guard.Mark(ctx, name)
		require.NoError(t, err)
		assert.NotEqual(t, fencing.Token(100), mark)
	}
}

func TestBadInputIsToldAtOnce(t *testing.T) {
	s := newScene(t, 1)
	ctx := within(t, soon)
	before := s.revision(t)
	for what, call := range map[string]func() error{
		"empty name": func() error { _, err := s.guard.Commit(ctx, "", 1); return err },
		"long name": func() error {
			_, err := s.guard.Commit(ctx, strings.Repeat("x", fencing.MaxNameLen+1), 1)
			return err
		},
		"not UTF-8":       func() error { _, err := s.guard.Commit(ctx, "\xff", 1); return err },
		"mark, not UTF-8": func() error { _, err := s.guard.Mark(ctx, "\xff"); return err },
		"forget nothing":  func() error { return s.guard.Forget(ctx, "") },
		"empty operation": func() error { _, err := s.guard.Commit(ctx, "r", 1, clientv3.Op{}); return err },
		"its own mark": func() error {
			_, err := s.guard.Commit(ctx, "r", 1, clientv3.OpPut("fencing/1/mark/r", "0"))
			return err
		},
		"another's mark": func() error {
			_, err := s.guard.Commit(ctx, "r", 1, clientv3.OpDelete("fencing/1/mark/q"))
			return err
		},
		"all keys": func() error {
			_, err := s.guard.Commit(ctx, "r", 1, clientv3.OpDelete("", clientv3.WithPrefix()))
			return err
		},
		"all from a key on": func() error {
			_, err := s.guard.Commit(ctx, "r", 1, clientv3.OpDelete("f", clientv3.WithFromKey()))
			return err
		},
		"a range": func() error {
			_, err := s.guard.Commit(ctx, "r", 1, clientv3.OpDelete("fencing/0", clientv3.WithRange("fencing/1/n")))
			return err
		},
		"hidden in a transaction": func() error {
			put := []clientv3.Op{clientv3.OpPut("fencing/1/x", "")}
			_, err := s.guard.Txn(ctx, "r", 1).Else(clientv3.OpTxn(nil, nil, put)).Commit()
			return err
		},
		"one key twice": func() error {
			_, err := s.guard.Commit(ctx, "r", 1, clientv3.OpPut("k", "1"), clientv3.OpPut("k", "2"))
			return err
		},
		"no key": func() error { _, err := s.guard.Commit(ctx, "r", 1, clientv3.OpPut("", "1")); return err },
		"no client": func() error {
			var c *clientv3.Client
			_, err := etcdguard.New(c, nil)
			return err
		},
		"nil":   func() error { _, err := etcdguard.New(nil, nil); return err },
		"slash": func() error { _, err := etcdguard.New(s.admin, &etcdguard.Options{Prefix: "/a"}); return err },
		"long prefix": func() error {
			_, err := etcdguard.New(s.admin, &etcdguard.Options{Prefix: strings.Repeat("a", 300)})
			return err
		},
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
