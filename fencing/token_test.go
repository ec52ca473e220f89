package fencing_test

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
)

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

func TestAdmit(t *testing.T) {
	require.NoError(t, fencing.Admit("r", 5, 0), "nothing was seen yet")
	require.NoError(t, fencing.Admit("r", 5, 4))
	require.NoError(t, fencing.Admit("r", 5, 5), "the same holder goes on")
	require.ErrorIs(t, fencing.Admit("r", 0, 5), fencing.ErrMissing)
	require.ErrorIs(t, fencing.Admit("r", 0, 0), fencing.ErrMissing)

	err := fencing.Admit("stock/7", 4, 5)
	require.ErrorIs(t, err, fencing.ErrStale)
	var stale *fencing.StaleError
	require.ErrorAs(t, err, &stale)
	assert.Equal(t, fencing.StaleError{Resource: "stock/7", Token: 4, Mark: 5}, *stale)
	assert.Equal(t,
		`fencing: stale fencing token 4 for "stock/7": it has seen 5, so a later holder was here`, err.Error())
	// Redis counts in microseconds, etcd in revisions: after a move everything is refused, and the error says
	// what helps.
	err = fencing.Admit("stock/7", 812, 1_763_700_000_000_000)
	assert.ErrorContains(t, err, "token_base is above all that were given out, 1763700000000000 at least")
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
	assert.ErrorContains(t, err, `the lock "b" in the context, which has tokens of "a"`)

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
