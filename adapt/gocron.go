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
// A job's run is skipped while another scheduler holds the lock on the job's name. Name jobs with
// gocron.WithName, and give the client a prefix. Because schedulers' clocks differ, a short job could
// be run again by the next scheduler; with a MinHold slightly shorter than the job's interval, it runs
// once per interval.
//
// What you give up: gocron gives a job no context that ends with the lock, and ignores the result of
// Unlock. If the lock is lost, the job continues alongside the next one. For jobs that must not
// overlap, lock in the job; see the package's first example.
func Gocron[L interface {
	Unlock(ctx context.Context) error
}](l locker.Locker, opts ...locker.Option) *GocronLocker[L] {
	_ = any((*locker.Lease)(nil)).(L) // if L is not gocron.Lock, panic now and not in a job
	return &GocronLocker[L]{given(l), opts}
}

// Lock locks key without waiting for another holder.
func (g *GocronLocker[L]) Lock(ctx context.Context, key string) (L, error) {
	lease, err := g.l.TryLock(ctx, key, g.opts...)
	if err != nil {
		var none L
		return none, err
	}
	return any(lease).(L), nil
}
