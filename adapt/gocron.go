package adapt

import (
	"context"

	"github.com/golockers/locker"
)

// GocronLocker is a gocron.Locker (v2). See [Gocron].
type GocronLocker[L interface {
	Unlock(ctx context.Context) error
}] struct {
	l    locker.Locker
	opts []locker.Option
}

// Gocron makes a Locker for gocron v2:
//
//	gocron.WithDistributedLocker(adapt.Gocron[gocron.Lock](l, locker.MinHold(50*time.Second)))
//
// A run of a job is skipped where another holds the lock on the job's name: name jobs
// with gocron.WithName, and give the client a prefix. The clocks of schedulers differ,
// so a job that is short would be run again by the next one: with a MinHold a little
// shorter than the job's interval, one runs it in each interval.
//
// What is lost: gocron gives a job no context that ends with the lock, and does not
// look at what Unlock returns. If the lock is lost, the job goes on beside the next
// one. For jobs that must not, lock in the job; see the package's first example.
func Gocron[L interface {
	Unlock(ctx context.Context) error
}](l locker.Locker, opts ...locker.Option) *GocronLocker[L] {
	_ = any((*locker.Lease)(nil)).(L) // panics now, not in a job, if L is another type than gocron.Lock
	return &GocronLocker[L]{given(l), opts}
}

// Lock locks key, and does not wait for another holder.
func (g *GocronLocker[L]) Lock(ctx context.Context, key string) (L, error) {
	lease, err := g.l.TryLock(ctx, key, g.opts...)
	if err != nil {
		var none L
		return none, err
	}
	return any(lease).(L), nil
}
