package locker

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
)

// A loss that is told while its holder unlocks must not put off what that has begun.
func TestTheSoonerOfTwoTakeBacksStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := must(New(granting{}, nil))
		now := time.Now()
		l := &Lease{client: c, name: "job", start: now, settings: settings{Asked: Asked{TTL: time.Minute}},
			grant: driver.Grant{Hold: granting{}, Validity: driver.Validity{Since: now, TTL: time.Minute}}}
		l.takeBack(unlocked)
		l.takeBack(lost)
		synctest.Wait()
		assert.Equal(t, uint64(1), c.Stats().TakenBack)
		assert.Zero(t, c.Stats().Pending)
		require.NoError(t, c.Close())
	})
}

// The schedule may call for a renewal that was due before the lease was over: it is not for the take-back,
// which waits for the end of MinHold.
func TestATakeBackWaitsForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		s := &crowd{release: func(context.Context) error { asked.Add(1); return nil }}
		c := must(New(s, nil))
		now := time.Now()
		l := &Lease{client: c, name: "job", start: now, err: ErrLost,
			settings: settings{Asked: Asked{TTL: time.Second, MinHold: time.Minute}},
			grant:    driver.Grant{Hold: s, Validity: driver.Validity{Since: now}}}
		l.takeBack(lost)
		l.due()
		time.Sleep(time.Minute)
		assert.Zero(t, asked.Load())
		assert.Equal(t, 1, c.Stats().Pending)
		time.Sleep(time.Second)
		assert.EqualValues(t, 1, asked.Load())
		require.NoError(t, c.Close())
	})
}
