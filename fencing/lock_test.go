package fencing_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/memory"
)

// tokenless is memory without its tokens; claims says whether it still claims to have them.
type tokenless struct {
	*memory.Backend
	claims driver.Fencing
	shared driver.Sharing
	asked  func() // nil: nobody wants to know
}

func (b tokenless) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if b.asked != nil {
		b.asked()
	}
	g, err := b.Backend.Acquire(ctx, req)
	g.Token = 0
	return g, err
}

func (b tokenless) Guarantees() locker.Guarantees {
	g := b.Backend.Guarantees()
	g.Backend, g.Fencing, g.Shared = "tokenless", b.claims, b.shared
	return g
}

func TestWithTokensRefusesABackendWithoutThem(t *testing.T) {
	_, err := fencing.WithTokens(locktest.Client(t, tokenless{Backend: memory.New()}, nil))
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, none := fencing.WithTokens(nil)
	require.ErrorIs(t, none, locker.ErrInvalid)
	assert.ErrorContains(t, err, "backend tokenless")
	assert.ErrorContains(t, err, "choose one that has them")
}

// A program that shares locks is told when it starts, and others may use the service all the same. One that has not
// said so then is told before anything is locked.
func TestSharersNeedTokens(t *testing.T) {
	for sharing, want := range map[driver.Sharing]error{locker.SharingNone: errors.ErrUnsupported,
		locker.SharingTokenless: errors.ErrUnsupported, locker.SharingWithTokens: nil} {
		c := locktest.Client(t,
			tokenless{Backend: memory.New(), claims: locker.FencingWhileKept, shared: sharing,
				asked: func() { assert.NoError(t, want, "the service was asked") }}, nil)
		_, err := fencing.WithTokens(c, locker.Shared())
		require.ErrorIs(t, err, want)
		l, err := fencing.WithTokens(c, locker.TTL(0))
		require.NoError(t, err)
		g, known := locker.GuaranteesOf(l)
		assert.True(t, known)
		assert.Equal(t, want == nil, g.Shared == locker.SharingWithTokens)
		assert.Equal(t, want != nil, g.Shared == locker.SharingNone)
		for _, lock := range []func(context.Context, string, ...locker.Option) (*locker.Lease, error){l.TryLock, l.Lock} {
			_, err = lock(t.Context(), "n", locker.Shared())
			require.ErrorIs(t, err, cmp.Or(want, fencing.ErrMissing))
		}
	}
}

func TestALeaseWithoutTokenIsGivenBack(t *testing.T) {
	l, err := fencing.WithTokens(locktest.Client(t,
		tokenless{Backend: memory.New(), claims: locker.FencingWhileKept}, nil))
	require.NoError(t, err)
	for range 2 { // the second call would be ErrHeld if the first had kept the lock
		for _, lock := range []func(context.Context, string, ...locker.Option) (*locker.Lease, error){l.TryLock, l.Lock} {
			lease, err := lock(t.Context(), "n")
			require.ErrorIs(t, err, fencing.ErrMissing)
			assert.Nil(t, lease)
		}
	}
}

func TestDoPutsTheTokenIntoTheContext(t *testing.T) {
	l, err := fencing.WithTokens(locktest.Client(t, memory.New(), nil))
	require.NoError(t, err)
	last := fencing.Token(0)
	for _, do := range []func(context.Context, locker.Locker, string, func(context.Context) error,
		...locker.Option) error{fencing.Do, fencing.TryDo} {
		require.NoError(t, do(t.Context(), l, "n", func(ctx context.Context) error {
			token, err := fencing.TokenFor(ctx, "n")
			assert.Greater(t, token, last)
			last = token
			require.ErrorIs(t, fencing.TryDo(ctx, l, "n", nil), locker.ErrHeld)
			// A lock inside leaves the outer one its token: with the inner one's, which may be far higher, a
			// holder from before would pass.
			require.NoError(t, do(ctx, l, "inner", func(ctx context.Context) error {
				outer, err := fencing.TokenFor(ctx, "n")
				assert.Equal(t, token, outer)
				return err
			}))
			return err
		}))
	}
}

func TestDoWithoutATokenDoesNothing(t *testing.T) {
	l := locktest.Client(t, tokenless{Backend: memory.New()}, nil)
	err := fencing.Do(t.Context(), l, "n", func(context.Context) error {
		t.Error("called without a token")
		return nil
	})
	require.ErrorIs(t, err, fencing.ErrMissing)
}

func TestDoTellsTokensThatWereSetBackFromALostLock(t *testing.T) {
	var guard fencing.Guard
	require.NoError(t, guard.Do(t.Context(), "n", 1_000_000, nil)) // of the service before
	write := func(ctx context.Context) error {
		token, err := fencing.FromContext(ctx)
		require.NoError(t, err)
		return guard.Do(ctx, "n", token, nil)
	}
	service := memory.New()
	err := fencing.Do(t.Context(), locktest.Client(t, service, nil), "n", write)
	require.ErrorIs(t, err, fencing.ErrStale)
	require.ErrorContains(t, err, "the lease on \"n\" is still held, however")
	require.ErrorContains(t, err, "token_base is above all granted so far, 1000000 at least")

	moved := locktest.Client(t, service, &locker.Options{TokenBase: 1_000_000})
	require.NoError(t, fencing.Do(t.Context(), moved, "n", write))

	// A refusal of a holder that has lost its lock is just that.
	err = fencing.Do(t.Context(), moved, "n", func(ctx context.Context) error {
		token, err := fencing.FromContext(ctx)
		require.NoError(t, err)
		require.NoError(t, guard.Do(ctx, "n", token+1, nil)) // a later holder
		require.NoError(t, moved.Close())
		return write(ctx)
	})
	require.ErrorIs(t, err, fencing.ErrStale)
	assert.NotContains(t, err.Error(), "token_base")
}

func TestATokenSurvivesItsText(t *testing.T) {
	for _, token := range []fencing.Token{1, 41, 1<<53 + 1, math.MaxUint64} {
		parsed, err := fencing.Parse(token.String())
		require.NoError(t, err)
		assert.Equal(t, token, parsed)

		text, err := json.Marshal(map[string]fencing.Token{"token": token})
		require.NoError(t, err)
		assert.JSONEq(t, `{"token":"`+token.String()+`"}`, string(text),
			"a string, since numbers are rounded by others")
		var back map[string]fencing.Token
		require.NoError(t, json.Unmarshal(text, &back))
		assert.Equal(t, token, back["token"])
	}
}

func TestWhatIsNoTokenIsRefusedAndNeverZero(t *testing.T) {
	_, err := json.Marshal(map[string]fencing.Token{"token": 0})
	require.ErrorIs(t, err, fencing.ErrMissing)
	for _, text := range []string{"", "0", "-1", "+1", " 1", "1 ", "007", "00", "1.5", "1e3", "0x10", "١",
		"18446744073709551616", strings.Repeat("9", 1000)} {
		token := fencing.Token(7)
		err := token.UnmarshalText([]byte(text))
		if text == "" || text == "0" {
			require.ErrorIs(t, err, fencing.ErrMissing)
		} else {
			require.ErrorIs(t, err, locker.ErrInvalid, text)
			assert.NotErrorIs(t, err, fencing.ErrMissing)
		}
		assert.Less(t, len(err.Error()), 200)
		assert.Equal(t, fencing.Token(7), token)
	}
}

func TestARefusalSaysWhatHelps(t *testing.T) {
	assert.EqualError(t, fencing.Admit("stock/7", 4, 5),
		`fencing: stale fencing token 4 for "stock/7": it has seen 5, so a later holder was here`)
	// Redis counts in microseconds, etcd in revisions: after a move everything is refused, and the error says
	// what helps.
	err := fencing.Admit("stock/7", 812, 1_763_700_000_000_000)
	assert.ErrorContains(t, err, "token_base is above all granted so far, 1763700000000000 at least")
	assert.NotContains(t, err.Error(), "\n")
}

func TestTheContextCarriesTheTokenOfEachLock(t *testing.T) {
	_, err := fencing.FromContext(t.Context())
	require.ErrorIs(t, err, fencing.ErrMissing)
	_, err = fencing.TokenFor(t.Context(), "a")
	require.ErrorIs(t, err, fencing.ErrMissing)

	ctx, cancel := context.WithCancel(fencing.NewContext(t.Context(), "a", 7))
	defer cancel()
	token, err := fencing.FromContext(ctx)
	require.NoError(t, err)
	assert.Equal(t, fencing.Token(7), token)
	_, err = fencing.TokenFor(ctx, "b")
	require.ErrorIs(t, err, fencing.ErrMissing)
	assert.ErrorContains(t, err, `the lock "b": the context is inside no held lease on it, and has tokens of "a"`)

	inner := fencing.NewContext(ctx, "b", 9)
	_, err = fencing.FromContext(inner)
	require.ErrorIs(t, err, locker.ErrInvalid, "it does not guess")
	require.NotErrorIs(t, err, fencing.ErrMissing)
	assert.ErrorContains(t, err, `"b", "a"`)
	for lock, want := range map[string]fencing.Token{"a": 7, "b": 9} {
		token, err := fencing.TokenFor(inner, lock)
		require.NoError(t, err)
		assert.Equal(t, want, token)
	}
	token, err = fencing.TokenFor(fencing.NewContext(inner, "a", 8), "a")
	require.NoError(t, err)
	assert.Equal(t, fencing.Token(8), token, "the innermost of one lock")

	hidden := fencing.NewContext(inner, "a", 0)
	_, err = fencing.TokenFor(hidden, "a")
	require.ErrorIs(t, err, fencing.ErrMissing, "0 hides what the context carried")
	token, err = fencing.FromContext(hidden)
	require.NoError(t, err)
	assert.Equal(t, fencing.Token(9), token, "the only one left")
}

// A lease that is inside of a token comes before it, and one around it does not: another Client's lease
// must not lend its token.
func TestTheTokenIsThatOfTheInnermost(t *testing.T) {
	a, b := locktest.Client(t, memory.New(), nil), locktest.Client(t, memory.New(), &locker.Options{TokenBase: 1000})
	token := func(ctx context.Context) fencing.Token {
		token, err := fencing.TokenFor(ctx, "n")
		require.NoError(t, err)
		return token
	}
	ctx := fencing.NewContext(t.Context(), "n", 0)
	_, err := fencing.TokenFor(ctx, "n")
	require.ErrorIs(t, err, fencing.ErrMissing)
	require.NoError(t, locker.Do(ctx, b, "n", func(ctx context.Context) error {
		assert.EqualValues(t, 1001, token(ctx), "a lease inside of a token of 0")
		lost := context.Context(nil)
		err := fencing.Do(ctx, a, "n", func(ctx context.Context) error {
			assert.EqualValues(t, 1, token(ctx))
			lost = context.WithoutCancel(ctx)
			return nil
		})
		assert.EqualValues(t, 1, token(lost), "its own, though the lease around it is held")
		require.NoError(t, locker.Do(lost, a, "n", func(ctx context.Context) error {
			assert.EqualValues(t, 2, token(ctx), "that of the lease since")
			return nil
		}))
		return err
	}))
}

// Nobody has used what has no token: no MinHold keeps it.
func TestALeaseWithoutATokenIsGivenBack(t *testing.T) {
	c := locktest.Client(t, tokenless{Backend: memory.New(), claims: locker.FencingWhileKept}, nil)
	l, err := fencing.WithTokens(c)
	require.NoError(t, err)
	for range 2 {
		_, err = l.TryLock(t.Context(), "n", locker.MinHold(time.Hour))
		require.ErrorIs(t, err, fencing.ErrMissing)
		err = fencing.TryDo(t.Context(), c, "n", func(context.Context) error { return nil }, locker.MinHold(time.Hour))
		require.ErrorIs(t, err, fencing.ErrMissing)
	}
}
