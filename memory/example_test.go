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
	alice, err := locker.New(locks, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer alice.Close()
	bob, err := locker.New(locks, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
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
	err = locker.Do(ctx, bob, "report", func(ctx context.Context) error {
		lease, held := locker.FromContext(ctx, "report")
		token, _ := lease.Token()
		fmt.Println("bob's token:", token, held)
		return nil
	})
	fmt.Println("bob's error:", err)

	// Output:
	// held: true
	// bob's token: 2 true
	// bob's error: <nil>
}
