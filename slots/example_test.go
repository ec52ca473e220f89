package slots_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
	"github.com/golockers/locker/slots"
)

// Two users at once may use the scanner, each with its own tray.
func ExampleDo() {
	ctx := context.Background()
	client, err := locker.New(memory.New(), nil) // backends.Open(…) on real machines
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	scan := func(ctx context.Context) error {
		slot, held := slots.FromContext(ctx, "scanner")
		if !held {
			return context.Cause(ctx) // it was lost at once
		}
		fmt.Println("tray", slot.Number)
		return nil
	}
	fmt.Println(slots.Do(ctx, client, "scanner", 2, func(ctx context.Context) error {
		_ = scan(ctx)
		fmt.Println("beside it:", slots.Do(ctx, client, "scanner", 2, scan))
		other, err := slots.TryLock(ctx, client, "scanner", 2)
		if err != nil {
			return err
		}
		fmt.Println("a third:", errors.Is(slots.TryDo(context.Background(), client, "scanner", 2, scan), locker.ErrHeld))
		return other.Unlock(ctx)
	}))
	// Output:
	// tray 0
	// tray 1
	// beside it: <nil>
	// a third: true
	// <nil>
}

// Each worker has a number for as long as it lives, and nobody else gets that number within an hour of
// its grant.
func ExampleTryLock() {
	ctx := context.Background()
	locks := memory.New()
	for range 3 {
		client, err := locker.New(locks, nil)
		if err != nil {
			log.Fatal(err)
		}
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

// There are two printers, and a page goes to the first free one.
func ExampleLockAny() {
	ctx := context.Background()
	client, err := locker.New(memory.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
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
