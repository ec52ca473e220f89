package locker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
)

// Many machines start a job at about the same time, and one sends the report: the lock is kept for most
// of the hour, although the job takes a moment.
func Example_oncePerHour() {
	ctx := context.Background()
	locks := memory.New()
	for _, machine := range []string{"machine-1", "machine-2", "machine-3"} {
		client, err := locker.New(locks, nil)
		if err != nil {
			log.Fatal(err)
		}
		err = locker.TryDo(ctx, client, "hourly report", func(context.Context) error {
			fmt.Println(machine, "sends the report")
			return nil
		}, locker.MinHold(55*time.Minute))
		if err != nil && !errors.Is(err, locker.ErrHeld) {
			fmt.Println(err)
		}
		_ = client.Close() // the machine may go away: the lock stays
	}
	// Output: machine-1 sends the report
}

// A lease does not belong to a goroutine. The goroutine that locks may hand it to another one, which
// unlocks; the lock is held throughout, so nobody else gets in.
func ExampleLease_handedOn() {
	ctx := context.Background()
	client, err := locker.New(memory.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
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

// Money moves between two accounts while both are locked. A transfer the other way at the same time
// cannot cause a deadlock: names are locked in one order.
func ExampleDoAll() {
	ctx := context.Background()
	client, err := locker.New(memory.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	transfer := func(from, to string) error {
		return locker.DoAll(ctx, client, []string{from, to}, func(ctx context.Context) error {
			for _, name := range []string{from, to} {
				lease, held := locker.FromContext(ctx, name)
				fmt.Println("holds", lease.Name(), held)
			}
			return nil
		})
	}
	fmt.Println(transfer("account/7", "account/3"))
	// Output:
	// holds account/7 true
	// holds account/3 true
	// <nil>
}
