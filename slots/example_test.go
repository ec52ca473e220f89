package slots_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
	"github.com/golockers/locker/slots"
)

// Two at once may use the scanner, and each has a tray of its own.
func ExampleDo() {
	ctx := context.Background()
	client := locker.New(memory.New(), nil) // backends.Open(…) on real machines
	defer func() { _ = client.Close() }()

	scan := func(ctx context.Context, first *slots.Slot) error {
		return slots.Do(ctx, client, "scanner", 2, func(_ context.Context, second *slots.Slot) error {
			fmt.Println("trays", first.Number, "and", second.Number)
			err := slots.TryDo(ctx, client, "scanner", 2, nil)
			fmt.Println("a third:", errors.Is(err, locker.ErrHeld))
			return nil
		})
	}
	fmt.Println(slots.Do(ctx, client, "scanner", 2, scan))
	// Output:
	// trays 0 and 1
	// a third: true
	// <nil>
}

// Each worker has a number for as long as it lives, and nobody gets the number of
// another within an hour of its grant.
func ExampleTryLock() {
	ctx := context.Background()
	locks := memory.New()
	for range 3 {
		client := locker.New(locks, nil)
		worker, err := slots.TryLock(ctx, client, "worker-id", 1000, locker.MinHold(time.Hour))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("worker", worker.Number)
		_ = client.Close() // it dies early
	}
	// Output:
	// worker 0
	// worker 1
	// worker 2
}

// There are two printers, and a page goes to the first that is free.
func ExampleLockAny() {
	ctx := context.Background()
	client := locker.New(memory.New(), nil)
	defer func() { _ = client.Close() }()

	printers := []string{"printer/ground floor", "printer/attic"}
	first, _ := slots.LockAny(ctx, client, printers)
	second, _ := slots.LockAny(ctx, client, printers)
	fmt.Println("pages are printed on", first.Name(), "and", second.Name())
	_ = first.Unlock(ctx)
	third, _ := slots.LockAny(ctx, client, printers)
	fmt.Println("then on", third.Name())
	// Output:
	// pages are printed on printer/ground floor and printer/attic
	// then on printer/ground floor
}
