package locker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
)

// Of all the machines whose clocks strike at about the same time, one sends the
// report: the lock is kept for most of the hour, though the job takes a moment.
func Example_oncePerHour() {
	ctx := context.Background()
	locks := memory.New()
	for _, machine := range []string{"machine-1", "machine-2", "machine-3"} {
		client := locker.New(locks, nil)
		err := locker.TryDo(ctx, client, "hourly report", func(context.Context, *locker.Lease) error {
			fmt.Println(machine, "sends the report")
			return nil
		}, locker.MinHold(55*time.Minute))
		if err != nil && !errors.Is(err, locker.ErrHeld) {
			fmt.Println(err)
		}
		_ = client.Close() // the machine may go: the lock stays
	}
	// Output: machine-1 sends the report
}

// A lease belongs to no goroutine. The one that locks may hand it on to another,
// which unlocks; nothing is between them, so no third comes in.
func ExampleLease_handedOn() {
	ctx := context.Background()
	client := locker.New(memory.New(), nil)
	defer func() { _ = client.Close() }()

	leases := make(chan *locker.Lease)
	done := make(chan error)
	go func() {
		lease := <-leases
		ctx, cancel := lease.Context(ctx) // ends if the lease does
		defer cancel()
		fmt.Println("working:", ctx.Err() == nil)
		done <- lease.Unlock(context.WithoutCancel(ctx))
	}()

	lease, err := client.Lock(ctx, "upload")
	if err != nil {
		fmt.Println(err)
		return
	}
	leases <- lease
	fmt.Println("unlocked:", <-done)
	// Output:
	// working: true
	// unlocked: <nil>
}

// Money moves between two accounts while both are locked. Whoever moves it the
// other way at the same time is not in the way: names are locked in one order.
func ExampleDoAll() {
	ctx := context.Background()
	client := locker.New(memory.New(), nil)
	defer func() { _ = client.Close() }()

	transfer := func(from, to string) error {
		return locker.DoAll(ctx, client, []string{from, to}, func(_ context.Context, leases locker.Leases) error {
			for _, lease := range leases {
				fmt.Println("holds", lease.Name())
			}
			return nil
		})
	}
	fmt.Println(transfer("account/7", "account/3"))
	// Output:
	// holds account/3
	// holds account/7
	// <nil>
}
