package adapt

import (
	"context"
	"errors"
	"sync"

	"github.com/golockers/locker"
)

// Sync returns a sync.Locker for name, for code that takes one. A sync.Locker returns no errors, so:
//
//   - Lock waits until it holds name. If it cannot, it panics with the error: when ctx has ended, when
//     the service refused or was unreachable for longer than the OutageTimeout of [locker.Options], or
//     when a [locker.MaxWait] has passed.
//   - What you give up: the code under the lock does not learn that it is lost, and another may then
//     hold it. onLoss is called with the error, once per loss, and must end that code: log.Fatal is
//     safe. It is called at once, in a goroutine of its own, or by Unlock if that is the first to learn
//     of the loss.
//   - Unlock returns within five seconds; the release may continue in the background. It panics if
//     nothing is locked.
//
// Goroutines that share one Sync exclude each other until Unlock, even if the lock was lost.
func Sync(ctx context.Context, l locker.Locker, name string, onLoss func(error), opts ...locker.Option) sync.Locker {
	if onLoss == nil {
		panic("adapt: Sync needs an onLoss function")
	}
	lock := func() (*locker.Lease, error) { return given(l).Lock(ctx, name, opts...) }
	return &syncLocker{ctx, lock, onLoss, make(chan struct{}, 1), make(chan func(), 1)}
}

type syncLocker struct {
	ctx    context.Context
	lock   func() (*locker.Lease, error)
	onLoss func(error)
	turn   chan struct{} // full from Lock to Unlock
	unlock chan func()   // what Unlock does; full while something is locked
}

func (s *syncLocker) Lock() {
	select {
	case s.turn <- struct{}{}:
	case <-s.ctx.Done():
		panic(context.Cause(s.ctx))
	}
	locked := false
	defer func() {
		if !locked { // even if the backend panics
			<-s.turn
		}
	}()
	lease, err := s.lock()
	if err != nil {
		panic(err)
	}
	locked = true
	over, cancel := lease.Context(context.Background())
	stop := context.AfterFunc(over, func() { s.onLoss(context.Cause(over)) })
	s.unlock <- func() {
		defer cancel()
		untold := stop()
		ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
		defer cancel()
		if err := lease.Unlock(ctx); untold && errors.Is(err, locker.ErrLost) {
			s.onLoss(err)
		}
	}
}

func (s *syncLocker) Unlock() {
	select {
	case unlock := <-s.unlock:
		defer func() { <-s.turn }()
		unlock()
	default:
		panic("adapt: Unlock of a Sync that is not locked")
	}
}
