package adapt_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/adapt"
	"github.com/golockers/locker/memory"
)

// Two schedulers of gocron want to run the same job in the same minute.
func ExampleGocron() {
	ctx := context.Background()
	client := locker.New(memory.New(), nil) // backends.Openers.Open(…) on real machines
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
