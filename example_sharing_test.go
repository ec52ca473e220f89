package locker_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
)

// Any number of readers hold a name together; a writer holds it exclusively.
func ExampleShared() {
	ctx := context.Background()
	client, err := locker.New(memory.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	read := func(context.Context) error {
		fmt.Println("reads")
		return locker.TryDo(ctx, client, "site", func(context.Context) error {
			fmt.Println("reads at the same time")
			_, err := client.TryLock(ctx, "site")
			fmt.Println("a writer has to wait:", errors.Is(err, locker.ErrHeld))
			return nil
		}, locker.Shared())
	}
	fmt.Println(locker.Do(ctx, client, "site", read, locker.Shared()))
	fmt.Println(locker.Do(ctx, client, "site", func(context.Context) error {
		_, err := client.TryLock(ctx, "site", locker.Shared())
		fmt.Println("the writer is alone:", errors.Is(err, locker.ErrHeld))
		return nil
	}))
	// Output:
	// reads
	// reads at the same time
	// a writer has to wait: true
	// <nil>
	// the writer is alone: true
	// <nil>
}

// A label shows others who holds a name, and what for: a client has one for all of its locks, and a
// call may have another.
func ExampleLabel() {
	ctx := context.Background()
	client, err := locker.New(memory.New(), &locker.Options{Label: "web-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	for _, opts := range [][]locker.Option{nil, {locker.Label("web-1, request 4711")}} {
		err := locker.Do(ctx, client, "invoice/1234", func(ctx context.Context) error {
			state, err := client.Inspect(ctx, "invoice/1234")
			fmt.Println("held by", state.Label)
			return err
		}, opts...)
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// held by web-1
	// held by web-1, request 4711
}

// A page is made from two articles, which others may read meanwhile but nobody may change. Names are
// always locked in one order, so that no two calls wait for each other.
func ExampleLockAll() {
	ctx := context.Background()
	client, err := locker.New(memory.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	articles, err := locker.LockAll(ctx, client, []string{"article/9", "article/2"}, locker.Shared())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, lease := range articles {
		fmt.Println("reads", lease.Name())
	}
	others, err := locker.LockAll(ctx, client, []string{"article/2", "article/3"}, locker.Shared())
	fmt.Println("other readers:", len(others), err)
	_, err = client.TryLock(ctx, "article/2")
	fmt.Println("a writer has to wait:", errors.Is(err, locker.ErrHeld))
	fmt.Println(articles.Unlock(ctx), others.Unlock(ctx))
	// Output:
	// reads article/2
	// reads article/9
	// other readers: 2 <nil>
	// a writer has to wait: true
	// <nil> <nil>
}
