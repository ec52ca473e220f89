package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
)

// rough are the ageings in which servers fail: nobody declares that leases and calls outlast those, but that locks
// are held by one alone.
var rough = []string{"members", "versions"}

// Ages brings about all that months bring to the services of the lab, while one client holds a lock, another
// waits for it, and a third takes one after each step.
func Ages(t *testing.T, openers Opener) {
	for _, a := range lab.Ageings() {
		t.Run(a.Service+"/"+a.Thing, func(t *testing.T) {
			t.Parallel()
			assert.NoError(t, age(t, a, openers))
		})
	}
}

// age returns what was not survived.
func age(t *testing.T, a lab.Ageing, openers Opener) error {
	is := a.Start(t)
	open := func() *locker.Client {
		c, err := openers.Open(t.Context(), is.URL, &locker.Options{TTL: is.TTL})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	within := func(d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		t.Cleanup(cancel)
		return ctx
	}
	holder, waiter, job := open(), open(), open()
	gentle := !slices.Contains(rough, a.Thing)
	soon := 10*time.Second + 2*is.TTL + holder.Guarantees().DeadHolderSlack

	held, err := holder.Lock(within(soon), "held")
	require.NoError(t, err)
	var released atomic.Bool
	overlap, next := make(chan error, 1), make(chan *locker.Lease, 1)
	go func() {
		l, err := waiter.Lock(within(5*time.Minute), "held")
		if err == nil && !released.Load() && held.Err() == nil && time.Now().Before(held.Until()) {
			err = errors.New("two held at once")
		}
		overlap <- err
		next <- l
	}()
	var problems []error
	for i, step := range is.Steps {
		proof := step(t)
		require.NotEmpty(t, proof, "what was to happen was not seen")
		t.Log(proof)
		name, ctx := fmt.Sprintf("step-%d", i), within(soon)
		l, err := job.TryLock(ctx, name)
		if err != nil && !gentle {
			l, err = job.Lock(ctx, name)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("after step %d a call failed: %w", i+1, err))
			continue
		}
		require.NoError(t, l.Unlock(ctx))
	}
	time.Sleep(13 * is.TTL / 10) // leases that cannot be renewed run out
	if gentle && held.Err() != nil {
		problems = append(problems, fmt.Errorf("a lease was lost: %w", held.Err()))
	}
	released.Store(true)
	if err := held.Unlock(within(soon)); err != nil && gentle && held.Err() == nil {
		problems = append(problems, fmt.Errorf("an unlock failed: %w", err))
	}
	select {
	case err := <-overlap:
		problems = append(problems, err)
		if l := <-next; l != nil {
			_ = l.Unlock(within(soon))
		}
	case <-time.After(soon):
		problems = append(problems, errors.New("who waits does not get in"))
	}
	return errors.Join(problems...)
}
