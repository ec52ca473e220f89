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
	client, err := locker.New(memory.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	err = locker.Do(context.Background(), client, "invoice/1234",
		func(ctx context.Context) error {
			fmt.Println("held until unlocked")
			return ctx.Err() // ctx ends at once if the lock is lost
		})
	if err != nil {
		log.Fatal(err)
	}
	// Output: held until unlocked
}

// Code called under a lock finds the lease, and with it the token, in its context.
func ExampleFromContext() {
	client, err := locker.New(memory.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	write := func(ctx context.Context) error {
		lease, held := locker.FromContext(ctx, "invoice/1234")
		if !held {
			return errors.New("call it under the lock of the invoice")
		}
		token, _ := lease.Token()
		fmt.Println("written with token", token)
		return nil
	}
	fmt.Println(write(context.Background()))
	fmt.Println(locker.Do(context.Background(), client, "invoice/1234", write))
	// Output:
	// call it under the lock of the invoice
	// written with token 1
	// <nil>
}

func ExampleClient_TryLock() {
	client, err := locker.New(memory.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
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
	client, err := locker.New(memory.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if _, err := client.Lock(context.Background(), "job"); err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	_, err = client.Lock(ctx, "job")
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
	// Output: locker: open: invalid argument: backend URL: memory://: unknown parameter, number 1: the known ones are label, max_hold, outage_timeout, prefix, token_base, ttl
}

func ExampleRequire() {
	client, err := locker.New(memory.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	err = locker.Require(client, locker.Guarantees{Scope: locker.ScopeNetwork,
		Fencing: locker.FencingWhileKept})
	fmt.Println(err)
	// Output: locker: require: backend memory promises too little: Scope: want network, have process: unsupported operation
}
