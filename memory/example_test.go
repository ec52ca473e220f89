package memory_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/memory"
)

// Two Clients of one Backend are like two programs that use one service.
func Example() {
	ctx := context.Background()
	locks := memory.New()
	alice, bob := locker.New(locks, nil), locker.New(locks, nil)
	defer alice.Close()
	defer bob.Close()

	lease, err := alice.Lock(ctx, "report")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = bob.TryLock(ctx, "report")
	fmt.Println("held:", errors.Is(err, driver.ErrHeld))

	if err := lease.Unlock(ctx); err != nil {
		fmt.Println(err)
		return
	}
	err = locker.Do(ctx, bob, "report", func(_ context.Context, lease *locker.Lease) error {
		token, _ := lease.Token()
		fmt.Println("bob's token:", token)
		return nil
	})
	fmt.Println("bob's error:", err)

	// Output:
	// held: true
	// bob's token: 2
	// bob's error: <nil>
}

// A lock that is taken away ends the lease of its holder.
func ExampleBackend_Delete() {
	ctx := context.Background()
	locks := memory.New()
	client := locker.New(locks, nil)
	defer client.Close()

	lease, err := client.Lock(ctx, "report")
	if err != nil {
		fmt.Println(err)
		return
	}
	locks.Delete("report")
	<-lease.Done()
	fmt.Println("lost:", errors.Is(lease.Err(), driver.ErrLost))

	// Output:
	// lost: true
}
