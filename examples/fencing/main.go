// Command fencing shows why a lock alone does not protect what is written
// under it, and what a fencing token changes. It needs no server:
//
//	go run ./examples/fencing
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/memory"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The same report twice: once as it is, once behind a guard, which remembers
// the highest token that has written.
var (
	plain, guarded string
	guard          fencing.Guard
)

// write writes to both, with the token that its context carries.
func write(ctx context.Context, text string) error {
	plain = text

	token, err := fencing.FromContext(ctx)
	if err != nil {
		return err
	}
	return guard.Do(ctx, "report", token, func() error {
		guarded = text
		return nil
	})
}

func run(ctx context.Context) error {
	service := memory.New() // a Redis or an etcd, where there are several machines
	alices, bobs := locker.New(service, nil), locker.New(service, nil)
	defer alices.Close()
	defer bobs.Close()

	// Alice gets the lock, for no longer than half a second. She looks at her lease
	// once more before she writes.
	lease, err := alices.Lock(ctx, "report", locker.MaxHold(500*time.Millisecond))
	if err != nil {
		return err
	}
	token, err := fencing.Of(lease)
	if err != nil {
		return err
	}
	fmt.Printf("alice holds the lock with token %v, and her lease is valid: %v\n", token, lease.Err() == nil)

	// Here her machine stops, between her look and her write. Bob waits until
	// her time is over, gets the lock and writes.
	err = fencing.Do(ctx, bobs, "report", func(ctx context.Context) error {
		token, err := fencing.FromContext(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("bob holds the lock with token %v, and writes\n", token)
		return write(ctx, "by bob")
	})
	if err != nil {
		return err
	}

	// Her machine goes on where it stopped.
	err = write(fencing.NewContext(ctx, "report", token), "by alice")
	fmt.Println("alice writes:", err)
	fmt.Println("the report without a guard is", plain)
	fmt.Println("the report behind a guard is", guarded)
	return nil
}
