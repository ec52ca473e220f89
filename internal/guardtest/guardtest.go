// Package guardtest has the tests that are the same for every guard of package
// fencing: which tokens pass, what Raise is for, and that no lower token writes
// after a higher one, however many write at once.
package guardtest

import (
	"context"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
)

// Store is a store with a guard, in which each resource is one value. Its functions
// are called from many goroutines at once.
type Store struct {
	// Write replaces the value of a resource.
	Write func(ctx context.Context, resource string, token fencing.Token, value string) error
	Raise func(ctx context.Context, resource string, token fencing.Token) error
	Read  func(ctx context.Context, resource string) (string, error) // "" before the first write
	Mark  func(ctx context.Context, resource string) (fencing.Token, error)

	// Again reports that others were in the way and that the caller has to repeat
	// its write, as with transactions. nil: never. Raise repeats itself.
	Again func(error) bool

	// MaxToken is the highest token that the store can keep. 0: the highest of all.
	MaxToken fencing.Token

	// AnyName: each text of 1 to fencing.MaxNameLen bytes names a resource, and no other does.
	AnyName bool

	// Forget removes the mark of a resource. nil: the guard has no such method.
	Forget func(ctx context.Context, resource string) error

	// State changes with anything that is written to the store. nil: nobody knows it.
	State func() any
}

func (s Store) again(write func() error) error {
	for deadline := time.Now().Add(time.Minute); ; {
		err := write()
		if err == nil || s.Again == nil || !s.Again(err) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

func (s Store) write(t *testing.T, resource string, token fencing.Token, value string) error {
	return s.again(func() error { return s.Write(t.Context(), resource, token, value) })
}

func (s Store) raise(t *testing.T, resource string, token fencing.Token) error {
	return s.Raise(t.Context(), resource, token)
}

func (s Store) read(t *testing.T, resource string) (value string) {
	t.Helper()
	require.NoError(t, s.again(func() (err error) { value, err = s.Read(t.Context(), resource); return err }))
	return value
}

func (s Store) mark(t *testing.T, resource string) (mark fencing.Token) {
	t.Helper()
	require.NoError(t, s.again(func() (err error) { mark, err = s.Mark(t.Context(), resource); return err }))
	return mark
}

// Stale checks that err is a refusal, and both its numbers.
func Stale(t testing.TB, err error, resource string, token, mark fencing.Token) {
	t.Helper()
	var stale *fencing.StaleError
	require.ErrorIs(t, err, fencing.ErrStale)
	require.ErrorAs(t, err, &stale)
	assert.Equal(t, fencing.StaleError{Resource: resource, Token: token, Mark: mark}, *stale)
	assert.NotErrorIs(t, err, fencing.ErrUnknown)
}

// Run runs the tests. Each call of open gives another client of the same store.
func Run(t *testing.T, open func(t *testing.T) Store) {
	t.Run("tokens are numbers", func(t *testing.T) { testTokens(t, open(t)) })
	t.Run("no token, and no caller", func(t *testing.T) { testRefused(t, open(t)) })
	t.Run("names do not meet", func(t *testing.T) { testNames(t, open(t)) })
	t.Run("a forgotten mark lets any token pass", func(t *testing.T) { testForget(t, open(t)) })
	t.Run("raise", func(t *testing.T) { testRaise(t, open(t)) })
	t.Run("readers that hold together", func(t *testing.T) { testShared(t, open) })
	t.Run("many at once", func(t *testing.T) { During(t, open(t), clients(t, open), nil) })
}

// unchanged returns a function that checks that nothing at all was written to the store meanwhile.
func (s Store) unchanged(t *testing.T) (until func()) {
	t.Helper()
	if s.State == nil {
		return func() {}
	}
	before := s.State()
	return func() { t.Helper(); assert.Equal(t, before, s.State(), "something was written") }
}

// The order of texts, of floats, of signed numbers and of ten digits at a time is another.
func testTokens(t *testing.T, s Store) {
	const r = "tokens"
	rising := []fencing.Token{2, 9, 10, 99, 100, 9_999_999_999, 10_000_000_000, 10_000_000_001, 19_999_999_999,
		1<<53 + 1, 1<<53 + 2, math.MaxInt64, 1 << 63, 9_999_999_999_999_999_999, 10_000_000_000_000_000_000,
		math.MaxUint64 - 1, math.MaxUint64}
	assert.Zero(t, s.mark(t, r))
	for i, token := range rising {
		if s.MaxToken != 0 && token > s.MaxToken {
			break
		}
		for range 2 { // equal: the same holder goes on
			require.NoError(t, s.write(t, r, token, token.String()))
		}
		until := s.unchanged(t)
		for _, lower := range append([]fencing.Token{1}, rising[:i]...) {
			Stale(t, s.write(t, r, lower, "late"), r, lower, token)
			Stale(t, s.raise(t, r, lower), r, lower, token)
		}
		until()
		assert.Equal(t, token.String(), s.read(t, r))
		assert.Equal(t, token, s.mark(t, r))
	}
	require.NoError(t, s.write(t, "another", 1, "1"), "each resource has a mark of its own")
}

// Without a mark, and with one, nothing is written without a token, or for a caller that has given up.
func testRefused(t *testing.T, s Store) {
	const r = "refused"
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		until := s.unchanged(t)
		for err, want := range map[error]error{
			s.write(t, r, 0, "none"): fencing.ErrMissing, s.raise(t, r, 0): fencing.ErrMissing,
			s.Write(ctx, r, 1, "none"): context.Canceled, s.Raise(ctx, r, 1): context.Canceled,
		} {
			require.ErrorIs(t, err, want)
			require.NotErrorIs(t, err, fencing.ErrStale)
			assert.NotContains(t, err.Error(), "\n")
		}
		until()
		assert.NotEqual(t, "none", s.read(t, r))
		require.NoError(t, s.write(t, r, 1, "one"))
	}
}

// Names are some that an encoding, a collation or a padding could take for one another, and some
// that mean something to a store.
var Names = append(strings.Fields(`a A a/b a%2Fb a%252Fb / // . .. ... %2E %2E%2E ../x % 1/mark/x zookeeper
	ä Ä á ss ß ſ ı i İ 日本 日本語 🔒 ' " \ \\ \x61 _ $1 ? 0 00 NULL TRUE 1e0 1
	{a} {a}b b{a} } { {} {}a {}{a} a}b a}b{c} a{b a{b}c %7D a%7Db a}%7D a%7D} =a ={a} %{a} = {a}} {{a} {{a}}`),
	" ", "a ", "a  ", " a", "a\t", "a\n", "\n", "\x00", "\x00\x00", "a\x00", "a\u0308", "\u007f",
	"\u0085", "\ue000",
	"\ufff0", "`", "a'; DROP TABLE marks; --", strings.Repeat("/", fencing.MaxNameLen),
	strings.Repeat("}", fencing.MaxNameLen), strings.Repeat("ü", fencing.MaxNameLen/2),
	strings.Repeat("y", fencing.MaxNameLen), strings.Repeat("y", fencing.MaxNameLen-1)+"Y")

func testNames(t *testing.T, s Store) {
	if !s.AnyName {
		t.Skip("not every name is one of a resource here")
	}
	// The first gets the highest token: whoever shared its mark would be refused.
	token := func(i int) fencing.Token { return fencing.Token(1000 - i) }
	for i, name := range Names {
		require.NoError(t, s.raise(t, name, token(i)), "%q", name)
	}
	for i, name := range Names {
		assert.Equal(t, token(i), s.mark(t, name), "%q", name)
		Stale(t, s.raise(t, name, token(i)-1), name, token(i)-1, token(i))
	}
	until := s.unchanged(t)
	for _, name := range []string{"", "\xff", strings.Repeat("x", fencing.MaxNameLen+1)} {
		for _, err := range []error{s.write(t, name, 1, "bad"), s.raise(t, name, 1)} {
			require.ErrorIs(t, err, locker.ErrInvalid, "%.10q", name)
			assert.NotErrorIs(t, err, locker.ErrUnavailable)
			assert.NotContains(t, err.Error(), "\n")
		}
	}
	until()
}

func testForget(t *testing.T, s Store) {
	if s.Forget == nil {
		t.Skip("its guard forgets nothing")
	}
	const r, kept = "forgotten", "kept"
	for _, name := range []string{r, kept} {
		require.NoError(t, s.write(t, name, 9, "nine"))
	}
	for range 2 { // the second time there is none
		require.NoError(t, s.again(func() error { return s.Forget(t.Context(), r) }))
		assert.Zero(t, s.mark(t, r))
	}
	assert.Equal(t, fencing.Token(9), s.mark(t, kept))
	assert.Equal(t, "nine", s.read(t, r))
	require.NoError(t, s.write(t, r, 1, "one"), "a token of any age passes then")
}

func testRaise(t *testing.T, s Store) {
	const r = "raise"
	require.NoError(t, s.raise(t, r, 1), "before anything was written")
	assert.Empty(t, s.read(t, r))
	require.NoError(t, s.write(t, r, 1, "one"))
	for range 2 {
		require.NoError(t, s.raise(t, r, 2))
	}
	assert.Equal(t, fencing.Token(2), s.mark(t, r))
	Stale(t, s.write(t, r, 1, "late"), r, 1, 2)
	assert.Equal(t, "one", s.read(t, r), "Raise writes nothing")
	require.NoError(t, s.write(t, r, 2, "two"))
}

// Readers that hold a lock together have one token. To a guard they are one holder: they write in any
// order, a writer from before them is refused from the first that has raised the mark or written, and
// the next writer puts all of them out.
func testShared(t *testing.T, open func(t *testing.T) Store) {
	const r, before, readers, after = "shared", 1, 2, 3
	writer, each := open(t), []Store{open(t), open(t), open(t)}
	require.NoError(t, writer.write(t, r, before, "before"))
	require.NoError(t, writer.write(t, r, before, "late"), "no reader has used the mark: it passes")
	require.NoError(t, each[0].raise(t, r, readers))
	Stale(t, writer.write(t, r, before, "late"), r, before, readers)
	assert.Equal(t, "late", each[1].read(t, r))
	for _, reader := range each {
		require.NoError(t, reader.write(t, r, readers, "in turn"))
		require.NoError(t, reader.raise(t, r, readers), "another reader wrote meanwhile")
	}
	var all sync.WaitGroup
	for _, reader := range each {
		all.Go(func() {
			for range 10 {
				assert.NoError(t, reader.write(t, r, readers, "at once"))
			}
		})
	}
	all.Wait()
	Stale(t, writer.raise(t, r, before), r, before, readers)
	require.NoError(t, writer.raise(t, r, after))
	for _, reader := range each {
		Stale(t, reader.write(t, r, readers, "late"), r, readers, after)
	}
	assert.Equal(t, "at once", writer.read(t, r))
	require.NoError(t, writer.write(t, r, after, "after"))
}
