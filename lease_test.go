package locker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/locktest"
)

func TestHowALeaseLasts(t *testing.T) {
	play(t, map[string]string{
		"Until is the TTL less 1 % + 2 ms, from before the request (R1)": `
			service deaf; acquire: ok 2s; a locks: ok in 2s; a until 8.908s`,
		"it is renewed every third of its TTL": `a locks; 90s; a holds; count renew 29-33 Renewed 29-33`,
		// It postponed the loss to 7.4 s on a lease of 5 s elsewhere.
		"a renewal that hangs does not postpone the end (R2), and revives nothing": `
			service deaf; renew: 1h; a locks; a ends: lost in 8.908s; 2h; a ended: lost`,
		"a renewal that fails is no loss (R3)": `
			a locks; 2s; renew: hangs; 6s; renew: ok; 82s; a holds; count RenewFailed 1-9`,
		"and it is tried again up to the end": `
			renew: down; a locks; 8s; count renew 4-20; renew: ok; 900ms; a holds; renew: down
			a ends: lost in 10s-18s`,
		"a lock that is gone ends its lease with the next renewal, and is not acquired again (R12)": `
			a locks; job is deleted; a ends: lost in 2.5s-3s; job is free; count acquire 1`,
		"the service tells of a loss unasked, more than once": `
			service watches; a locks; job is deleted; a ended: lost; job is deleted: no; count Lost 1`,
		"and before its answer has come: it is never given out": `
			acquire: ok recalled; a tries: unavailable; job is free; count Lost 0 TakenBack 1`,
		"what was granted late is renewed while it lasts": `
			service deaf; acquire: ok 8.8s; a locks: ok in 8.8s; 27s; a holds`,
		"and so if more is left": `service deaf; acquire: ok 6.3s; a locks; 27s; a holds`,
		"an answer that comes after the end is no lease": `
			service deaf; acquire: ok 9s; a tries: unavailable; count release 1 Held 0`,
		"two renewals overtake each other: the later promise counts": `
			service deaf; a locks norenew; 1s; renew: ok 2s then ok; a renews: waits; 1s; a renews
			a until 10.908s
			2s; a until 10.908s`,
		"NoRenew leaves it to the holder": `
			a locks norenew; 4.5s; a renews; 6.75s; a holds; count renew 1
			renew: hangs; a renews until 10ms: deadline unavailable? in 10ms; a holds
			a ends: lost in 13s-14s; a renews: lost`,
		"whose call ends with the lease, and says so": `
			renew: hangs; a locks norenew; 8s; a renews: lost in 908ms`,
		"without a deadline it lasts, and is released at once when it is lost": `
			service lasts watches; a locks maxhold 10h; 5h; a holds; job is deleted; a ended: lost
			count release 1`,
	})
}

func TestMaxHoldEndsALease(t *testing.T) {
	play(t, map[string]string{
		"that is renewed, and its lock is kept as long": `
			a locks maxhold 45s; 44.5s; a holds; job is held; a ends: lost "MaxHold" in 44.548s
			a renews: lost "MaxHold"; 500ms; job is free`,
		"before its TTL": `
			a locks maxhold 4.5s; a until 4.453s; a ends: lost "MaxHold" in 4.453s; job is held; 5s
			job is free`,
		"of the length of a TTL": `
			a locks maxhold 9s; a until 8.908s; a ends: lost "MaxHold" in 8.908s; 1s; job is free`,
		"without a deadline: it is released": `
			service lasts; a locks maxhold 1s; a ends: lost "MaxHold" in 988ms; 1s; job is free`,
		"of a session that is renewed at its own pace, and is not asked in a loop": `
			service beats; 1250ms; a locks maxhold 9s; a ends: lost in 8.8s-9s; count renew 0-10`,
		"later than its heartbeat": `
			service beats; 1250ms; a locks maxhold 11.7s; a ends: lost in 11.5s-11.7s; count renew 0-13`,
		"much later": `
			service beats; 1250ms; a locks maxhold 45s; a ends: lost in 44.5s-45s; count renew 0-50`,
		"and Renew says so before": `
			a locks maxhold 4.5s; a renews: invalid "MaxHold of 4.5s is reached"; a holds`,
	})
}

func TestUnlock(t *testing.T) {
	play(t, map[string]string{
		"answers the same each time, and is one request": `
			a locks; a unlocks; a ended: unlocked; a unlocks; count release 1 Released 1; job is free`,
		"tells of a lock that the service does not have any more, and leaves another's alone": `
			a locks; job is deleted; others hold job 1m; a unlocks: lost; a unlocks: lost; job is held`,
		"goes on in the background if its context is over": `
			a locks; release: 1s; a unlocks until 0s: deadline in 0s; a unlocks: ok in 1s; job is free`,
		"is tried again in the background": `
			a locks; release: down then hangs then ok; a unlocks: unavailable "tried again in the background"
			count Pending 1; 6s; job is free; count Pending 0 TakenBack 1`,
		"also if it was refused": `
			a locks; release: refused then ok; a unlocks: refused; 1s; job is free; count TakenBack 1`,
		"after a loss clears what is left, at once": `
			service session; a locks norenew; a ends: lost in 8.908s; a unlocks: lost; job is free`,
		"of a lost lease is not needed; its holder has some grace": `
			service session; a locks norenew; a ends: lost in 8.908s; job is held; 1s; job is free`,
		"after a loss that the service told of: it is taken back once": `
			a locks; renew: gone; a ends: lost in 2.5s-3s; a unlocks: lost; job is free; 1m
			count TakenBack 1 release 1`,
		"overtakes a renewal, which has not failed": `
			service deaf; renew: 1s; a locks; 3.1s; count renew 1; a unlocks; 2s; count RenewFailed 0
			told: a attempt ok, a done ok, a released ok`,
		// A caller whose context cannot end was told that it had ended.
		"is bounded by a time that is not its caller's": `
			a locks; release: hangs then ok; a unlocks: unavailable in 5s-6s`,
		"of a prompt service goes on, too, and its first answer stays": `
			service prompt; a locks; release: hangs then ok; a unlocks until 1s: deadline unavailable in 1s
			a unlocks: unavailable; 1s; job is free`,
	})
}

func TestContextEndsWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.Client(t, newScripted(), nil)
		l := locktest.Lock(t, c, "job", locker.NoRenew())
		ctx, cancel := l.Context(t.Context())
		defer cancel()
		other, cancelOther := l.Context(t.Context())
		cancelOther()
		assert.Equal(t, context.Canceled, context.Cause(other))
		require.NoError(t, l.Err())
		<-ctx.Done()
		assert.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
		assert.Equal(t, l.Until(), time.Now())
		late, cancel := l.Context(t.Context())
		defer cancel()
		assert.ErrorIs(t, context.Cause(late), locker.ErrLost)
	})
}

func TestDo(t *testing.T) {
	mine := errors.New("mine")
	lost := func(ctx context.Context) {
		<-ctx.Done()
		assert.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
	}
	for what, test := range map[string]struct {
		does func(ctx context.Context, cancel func()) error
		want []error
	}{
		"the error of fn": {func(context.Context, func()) error { return mine }, []error{mine}},
		"the caller's context ends: the lock is given back all the same": {
			func(ctx context.Context, cancel func()) error { cancel(); <-ctx.Done(); return context.Cause(ctx) },
			[]error{context.Canceled}},
		"a loss is told even if fn does not care": {
			func(ctx context.Context, _ func()) error { lost(ctx); return nil }, []error{locker.ErrLost}},
		"and beside its error": {
			func(ctx context.Context, _ func()) error { lost(ctx); return mine }, []error{locker.ErrLost, mine}},
		"unlocked although fn panics": {func(context.Context, func()) error { panic("oops") }, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newScripted()
			c := locktest.Client(t, f, &locker.Options{TTL: ttl})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			defer func() {
				assert.Equal(t, test.want == nil, recover() != nil, what)
				synctest.Wait() // what was lost is taken back
				assert.False(t, f.held("job"), what)
			}()
			err := locker.Do(ctx, c, "job", func(ctx context.Context) error {
				assert.True(t, f.held("job"))
				return test.does(ctx, cancel)
			}, locker.NoRenew())
			for _, want := range test.want {
				assert.ErrorIs(t, err, want, what)
				assert.NotContains(t, err.Error(), "\n", what)
			}
		})
	}
}
