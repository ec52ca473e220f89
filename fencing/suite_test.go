package fencing_test

import (
	"context"
	"sync"
	"testing"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/guardtest"
)

func TestSuite(t *testing.T) {
	var guard fencing.Guard
	var mu sync.Mutex
	state := map[string]string{}
	guardtest.Run(t, func(*testing.T) guardtest.Store {
		return guardtest.Store{
			Write: func(ctx context.Context, r string, token fencing.Token, value string) error {
				return guard.Do(ctx, r, token, func() error {
					mu.Lock()
					defer mu.Unlock()
					state[r] = value
					return nil
				})
			},
			Raise: guard.Raise,
			Read: func(_ context.Context, r string) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				return state[r], nil
			},
			Mark: func(_ context.Context, r string) (fencing.Token, error) {
				mark, _ := guard.Mark(r)
				return mark, nil
			},
			Forget: func(_ context.Context, r string) error { guard.Forget(r); return nil },
		}
	})
}
