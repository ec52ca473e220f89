// Package story is what the examples have in common: a holder of a lock is paused
// after it got its token, another one comes, and the first goes on.
package story

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/fencing"
)

// Lock is the name of the lock, and of the resource that it protects.
const Lock = "order/42"

// Guarded is a resource behind a guard.
type Guarded interface {
	Raise(ctx context.Context, token fencing.Token) error
	Set(ctx context.Context, token fencing.Token, state string) error
	Get(ctx context.Context) (string, error)
}

// Tell tells the story, with the lock service at url, and prints it.
func Tell(ctx context.Context, url string, r Guarded) {
	client, err := backends.Openers.Open(ctx, url, nil)
	Must(err)
	defer func() { _ = client.Close() }()
	locks, err := fencing.WithTokens(client)
	Must(err)
	hold := func(fn func(token fencing.Token) error) {
		Must(fencing.Do(ctx, locks, Lock, func(ctx context.Context) error {
			token, err := fencing.TokenFor(ctx, Lock)
			if err != nil {
				return err
			}
			return fn(token)
		}))
	}
	var paused fencing.Token
	hold(func(token fencing.Token) error {
		paused = token
		if err := r.Raise(ctx, token); err != nil {
			return err
		}
		return r.Set(ctx, token, "paid")
	})
	hold(func(token fencing.Token) error {
		if err := r.Raise(ctx, token); err != nil {
			return err
		}
		read, err := r.Get(ctx)
		if err != nil {
			return err
		}
		fmt.Println("the second has read:", read)
		fmt.Println("the first is refused:", errors.Is(r.Set(ctx, paused, "cancelled"), fencing.ErrStale))
		return r.Set(ctx, token, read+" and sent")
	})
	state, err := r.Get(ctx)
	Must(err)
	fmt.Println("the state is:", state)
}

// Must ends the program with an error.
func Must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
