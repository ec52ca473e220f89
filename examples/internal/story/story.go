// Package story is what the examples have in common: a holder is paused after it got its token, another
// holder comes, and the first continues.
package story

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/fencing"
)

// Lock is the name of the lock, and of the resource that it protects.
const Lock = "order/42"

// Order is a resource behind a guard.
type Order struct {
	Raise func(ctx context.Context, resource string, token fencing.Token) error
	Set   func(ctx context.Context, token fencing.Token, state string) error
	Get   func(ctx context.Context) (string, error)
}

// Row is a Get for an order in a table of a database.
func Row(db *sql.DB) func(context.Context) (string, error) {
	return func(ctx context.Context) (state string, err error) {
		err = db.QueryRowContext(ctx, "SELECT state FROM orders WHERE id = 42").Scan(&state)
		return state, err
	}
}

// Tell tells the story, with the lock service at url, and prints it.
func Tell(ctx context.Context, url string, order Order) {
	client, err := backends.Open(ctx, url, nil)
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
		if err := order.Raise(ctx, Lock, token); err != nil {
			return err
		}
		return order.Set(ctx, token, "paid")
	})
	hold(func(token fencing.Token) error {
		if err := order.Raise(ctx, Lock, token); err != nil {
			return err
		}
		read, err := order.Get(ctx)
		if err != nil {
			return err
		}
		fmt.Println("the second has read:", read)
		fmt.Println("the first is refused:", errors.Is(order.Set(ctx, paused, "cancelled"), fencing.ErrStale))
		return order.Set(ctx, token, read+" and sent")
	})
	state, err := order.Get(ctx)
	Must(err)
	fmt.Println("the state is:", state)
}

// Must ends the program with an error.
func Must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
