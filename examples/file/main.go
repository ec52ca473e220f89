// Command file guards a file. The lock is on the same host.
package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/golockers/locker/examples/internal/story"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/fileguard"
)

func main() {
	dir, err := os.MkdirTemp("", "orders")
	story.Must(err)
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "order-42")
	guard, err := fileguard.New(path)
	story.Must(err)
	locks := filepath.Join(dir, "locks")
	story.Must(os.Mkdir(locks, 0o700))
	story.Tell(context.Background(), "file://"+locks, story.Order{
		Raise: func(ctx context.Context, _ string, token fencing.Token) error { return guard.Raise(ctx, token) },
		Set: func(ctx context.Context, token fencing.Token, state string) error {
			return guard.WriteFile(ctx, token, []byte(state), 0o644)
		},
		Get: func(context.Context) (string, error) {
			data, err := os.ReadFile(path)
			return string(data), err
		},
	})
}
