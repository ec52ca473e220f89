package adapt_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/adapt"
	"github.com/golockers/locker/lockertest"
	"github.com/golockers/locker/memory"
)

// Two schedulers of gocron want to run the same job in the same minute.
func ExampleGocron() {
	ctx := context.Background()
	client, err := locker.New(memory.New(), nil) // backends.Open(…) on real machines
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	type Lock = interface{ Unlock(context.Context) error } // gocron.Lock
	locks := adapt.Gocron[Lock](client, locker.MinHold(50*time.Second))
	for range 2 {
		lock, err := locks.Lock(ctx, "report")
		if errors.Is(err, locker.ErrHeld) {
			fmt.Println("another has run it")
			return
		}
		fmt.Println("runs the job")
		_ = lock.Unlock(ctx)
	}
	// Output:
	// runs the job
	// another has run it
}

// Code that takes a sync.Locker does not learn of a loss; the code that passes it one does.
func ExampleSync() {
	locks := lockertest.NewService()
	client, err := locker.New(locks, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	lost := make(chan error)
	onLoss := func(err error) { lost <- err } // or log.Fatal
	l := adapt.Sync(context.Background(), client, "inbox", onLoss)
	l.Lock()
	locks.Lose("inbox")
	fmt.Println("lost:", errors.Is(<-lost, locker.ErrLost))
	l.Unlock()
	// Output:
	// lost: true
}
