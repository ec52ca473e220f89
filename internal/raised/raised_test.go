package raised_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/raised"
)

func TestTokensRise(t *testing.T) {
	var tokens raised.Tokens
	assert.EqualValues(t, 7, tokens.Of(7))
	raise := func(number int64, token uint64) {
		var err error
		tokens, err = tokens.Raise(number, token)
		require.NoError(t, err)
	}
	raise(7, 7)
	assert.Zero(t, tokens, "the next one's is greater already")
	raise(7, 100)
	assert.EqualValues(t, 7, tokens.Of(7), "the holder's own stays")
	assert.EqualValues(t, 101, tokens.Of(8))
	raise(7, 200)
	raise(7, 50)
	assert.EqualValues(t, 7, tokens.Of(7))
	assert.EqualValues(t, 201, tokens.Of(8))
	raise(20, 213)
	assert.EqualValues(t, 214, tokens.Of(21), "as it was")
	raise(20, 1000)
	assert.EqualValues(t, 213, tokens.Of(20))
	assert.EqualValues(t, 1001, tokens.Of(21))
	back, err := raised.Parse(tokens.String())
	require.NoError(t, err)
	assert.Equal(t, tokens, back)
}

func TestTokensDoNotOverflow(t *testing.T) {
	var tokens raised.Tokens
	_, err := tokens.Raise(1, math.MaxInt64/2+1)
	require.ErrorIs(t, err, driver.ErrInvalid)
	tokens, err = tokens.Raise(1, math.MaxInt64/2)
	require.NoError(t, err)
	assert.LessOrEqual(t, tokens.Of(math.MaxInt64/2), uint64(driver.MaxToken))
	_, err = raised.Parse(tokens.String())
	require.NoError(t, err)
}

func TestWhatIsNotReadableIsNotZero(t *testing.T) {
	for _, text := range []string{"", "1", "1 2 3", "2 1 1 1", "1 1 1 1 ", "1 1 2 1",
		"1 1 1 9223372036854775807", "1 1 -1 1", "1 1 1 x"} {
		_, err := raised.Parse(text)
		assert.ErrorIs(t, err, driver.ErrRefused, "%q", text)
	}
}
