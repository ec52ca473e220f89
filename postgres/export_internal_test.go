package postgres

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/batch"
)

// ConfirmSQL is what is asked about standbys.
const ConfirmSQL = confirmSQL

// BusyFor and ProtectedFor are how long Acquire asks for a name that nobody holds.
const (
	BusyFor      = busyFor
	ProtectedFor = protectedFor
)

// Statements are those for the default table, by their names.
func Statements() map[string]string {
	s := statementsFor("public", DefaultTable)
	return map[string]string{
		"conditions": s.conditions, "grant": s.grant, "tell": s.tell, "take": s.take, "close": s.close,
		"take shares": s.takeShares, "join": s.join,
		"mark": s.mark, "unmark": s.unmark, "renew": s.renew, "release": s.release, "leave": s.leave, "keep": s.keep,
		"look": s.look, "list": s.list, "break": s.evict, "held": s.held,
		"floor": s.floor, "turn": s.turn, "sweep": s.sweep,
	}
}

// Key is the latch of a name.
func Key(name string) int64 { return statementsFor("public", DefaultTable).key(name) }

// Sweep removes old rows now.
func Sweep(ctx context.Context, b *Backend) error {
	b.busy.Wait() // a sweep of the first request in the background would be the one of these ten minutes
	s, err := b.ready(ctx, onStandby)
	if err == nil {
		// Nobody has swept for long.
		_, err = b.pool.Exec(ctx, "UPDATE "+s.table+" SET expires = 'epoch' WHERE name = ''")
	}
	if err == nil {
		err = b.pass(ctx)
	}
	return err
}

// A release that had changed one lock's row, and waited for another's or for an entry, would deadlock with a grant of
// both. The releases of one statement change them in the order of names; those of two have no order.
func TestReleasesOfTwoKindsAreNotOneTransaction(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none")
	require.NoError(t, err)
	defer pool.Close()
	b, err := New(pool, nil)
	require.NoError(t, err)
	defer func() { _ = b.Close() }()
	kinds := map[*batch.Batcher[request, fate]]bool{}
	for _, r := range []request{{}, {ttl: 1}, {sharer: "s"}, {sharer: "s", ttl: 1}} {
		kinds[b.releases[r.release()]] = true
	}
	assert.Len(t, kinds, 4)
}

func TestNamesThatWereRefusedLately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n names
		assert.False(t, n.lately("a"))
		n.note("a")
		time.Sleep(refusedFor)
		assert.True(t, n.lately("a"))
		n.note("a")
		time.Sleep(refusedFor)
		assert.True(t, n.lately("a"))
		time.Sleep(time.Nanosecond)
		assert.False(t, n.lately("a"))
		assert.Empty(t, n.at)
		for i := range 3 * mostNames {
			n.note(strconv.Itoa(i))
			assert.LessOrEqual(t, len(n.at), mostNames)
			assert.True(t, n.lately(strconv.Itoa(i)))
		}
		all := len(n.at)
		n.note(strconv.Itoa(3*mostNames - 1))
		assert.Len(t, n.at, all, "it is there already")
	})
}

// A caller whose time is over before the last answer is told what the one before said: refused if the name was held, and
// not if it was free.
func TestTheLastAnswerCounts(t *testing.T) {
	held, free := grant{left: 5 * time.Second}, grant{busy: true, left: askIn(0)}
	protected, ended := grant{protected: true, left: askIn(-time.Millisecond)}, grant{ended: true, busy: true, left: askIn(0)}
	for _, answers := range [][]grant{{held}, {held, free}, {held, protected}, {held, ended}, {held, free, free}} {
		synctest.Test(t, func(t *testing.T) {
			pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none")
			require.NoError(t, err)
			defer pool.Close()
			b, err := New(pool, nil)
			require.NoError(t, err)
			defer func() { _ = b.Close() }()
			left := answers
			b.acquires = batch.New(b.life, b.bounds(64), request.key, func(ctx context.Context, rs []request) ([]grant, error) {
				defer sent(rs, false)
				if len(left) == 0 {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				one := left[:1]
				left = left[1:]
				return one, nil
			})
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			g, err := b.Acquire(ctx, driver.Request{Name: "x", Owner: "o", TTL: time.Minute, Wait: true})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Empty(t, left)
			assert.Equal(t, len(answers) == 1, g.Refused != nil, "%d answers", len(answers))
		})
	}
}
