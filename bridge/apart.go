package bridge

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/probe"
)

// checkApart returns an error that matches ErrInvalid if both are the same service: an unused name is
// then held on the second as soon as it is held on the first.
func (b *Backend) checkApart(ctx context.Context) error {
	name := "locker-check/" + rand.Text()
	return b.sides[0].locked(ctx, name, func() error {
		err := b.sides[1].locked(ctx, name, func() error { return nil })
		if errors.Is(err, locker.ErrHeld) {
			return invalid("%s and %s lead to the same locks: give two services, or two prefixes", b.sides[0].name,
				b.sides[1].name)
		}
		return err
	})
}

// locked calls do while it holds name, an unused name, on this service alone.
func (s *side) locked(ctx context.Context, name string, do func() error) error {
	l, err := s.client.TryLock(ctx, name)
	if err != nil {
		return s.fail(bare(err))
	}
	err = do()
	var remains probe.Remains
	unlocked := l.Unlock(ctx)
	if unlocked == nil && l.As(&remains) {
		_ = remains(ctx) // without permission, they stay, as for any name
	}
	return cmp.Or(err, s.fail(bare(unlocked)))
}
