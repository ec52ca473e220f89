package guardtest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
)

// Owned is a value in a service that also has the lock "n", so that a write can check the lock itself.
// What writes reports whether it did.
type Owned struct {
	NewHolder func() *locker.Client
	// End ends a lease's lock in the service, before its holder can know.
	End    func(lease *locker.Lease)
	ByMark func(token fencing.Token, value string) error
	Raise  func(ctx context.Context, resource string, token fencing.Token) error
	// Own returns how the holder of a lease writes by ownership, and by both.
	Own func(lease *locker.Lease) (
		byOwnership func(value string) (bool, error), byBoth func(token fencing.Token, value string) (bool, error))
	Read func() string
}

// MarkAndOwnership has the two ways to guard a write, by mark and by ownership of the lock, side by side:
// what each refuses to a holder whose lock is gone before it knows.
func MarkAndOwnership(t *testing.T, s Owned) {
	first, second := s.NewHolder(), s.NewHolder()
	lock := func(c *locker.Client) (*locker.Lease, fencing.Token) {
		lease, err := c.Lock(t.Context(), "n")
		require.NoError(t, err)
		token, err := fencing.Of(lease)
		require.NoError(t, err)
		return lease, token
	}
	written := func(want bool, why string) func(bool, error) {
		return func(done bool, err error) {
			t.Helper()
			require.NoError(t, err, why)
			require.Equal(t, want, done, why)
		}
	}
	lease, token := lock(first)
	byOwnership, byBoth := s.Own(lease)
	require.NoError(t, s.ByMark(token, "1"))
	written(true, "it holds the lock")(byOwnership("2"))

	// Its lock ends in the service, before it can know. Nobody came after it yet.
	s.End(lease)
	written(false, "the lock is gone")(byOwnership("late"))
	require.NoError(t, s.ByMark(token, "3"), "mark: it has not seen a higher token")

	// The next holder has the lock, and has not written.
	next, higher := lock(second)
	require.Greater(t, higher, token)
	written(false, "the lock is another's")(byOwnership("late"))
	require.NoError(t, s.ByMark(token, "4"), "the mark knows only holders that have used it")

	// It says that it is there.
	require.NoError(t, s.Raise(t.Context(), "n", higher))
	require.ErrorIs(t, s.ByMark(token, "late"), fencing.ErrStale)
	written(false, "the lock is another's")(byOwnership("late"))
	assert.Equal(t, "4", s.Read())

	_, nextByBoth := s.Own(next)
	written(true, "it holds the lock, and the mark is its own")(nextByBoth(higher, "5"))
	_, err := byBoth(token, "late")
	require.ErrorIs(t, err, fencing.ErrStale)
	require.NoError(t, next.Unlock(t.Context()))
	written(false, "ownership refuses what comes after the lock was given back")(nextByBoth(higher, "late"))
	assert.Equal(t, "5", s.Read())
	<-lease.Done()
	require.ErrorIs(t, lease.Err(), locker.ErrLost)
	_ = lease.Unlock(t.Context())
}
