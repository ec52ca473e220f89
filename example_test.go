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

func Example() {
	client := locker.New(memory.New(), nil)
	defer func() { _ = client.Close() }()

	err := locker.Do(context.Background(), client, "invoice/1234",
		func(ctx context.Context, lease *locker.Lease) error {
			token, _ := lease.Token()
			fmt.Println("held until unlocked, fencing token", token)
			return ctx.Err() // ctx ends at once if the lock is lost
		})
	if err != nil {
		log.Fatal(err)
	}
	// Output: held until unlocked, fencing token 1
}

func ExampleClient_TryLock() {
	client := locker.New(memory.New(), nil)
	defer func() { _ = client.Close() }()
	ctx := context.Background()

	first, err := client.TryLock(ctx, "nightly")
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.TryLock(ctx, "nightly")
	if errors.Is(err, locker.ErrHeld) {
		fmt.Println("somebody else does it tonight")
	}
	if err := first.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: somebody else does it tonight
}

func ExampleClient_Lock_deadline() {
	client := locker.New(memory.New(), nil)
	defer func() { _ = client.Close() }()
	if _, err := client.Lock(context.Background(), "job"); err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := client.Lock(ctx, "job")
	fmt.Println(err)
	fmt.Println(errors.Is(err, context.DeadlineExceeded), errors.Is(err, locker.ErrHeld),
		errors.Is(err, locker.ErrUnavailable))
	// Output:
	// locker: lock "job": context deadline exceeded while waiting: the lock is held by another
	// true true false
}

func ExampleOpen() {
	client, err := locker.Open(context.Background(), "memory://?ttl=10s&prefix=billing/", nil, memory.Openers)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	_, err = locker.Open(context.Background(), "memory://?timeout=10s", nil, memory.Openers)
	fmt.Println(err)
	// Output: locker: open: invalid argument: backend URL: memory://: unknown parameter, number 1: the known ones are label, max_hold, patience, prefix, token_base, ttl
}

func ExampleRequire() {
	client := locker.New(memory.New(), nil)
	defer func() { _ = client.Close() }()

	err := locker.Require(client, locker.Guarantees{Scope: locker.ScopeNetwork,
		Fencing: locker.FencingWhileKept})
	fmt.Println(err)
	// Output: locker: require: backend memory promises too little: Scope: want network, have process: unsupported operation
}
