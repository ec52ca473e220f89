//go:build linux || darwin || freebsd

package fileguard_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/fileguard"
	"github.com/golockers/locker/memory"
)

// The two holders could as well be two programs with a lock of package file.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "reports")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	guard, err := fileguard.New(filepath.Join(dir, "report.txt"))
	if err != nil {
		fmt.Println(err)
		return
	}
	locks := locker.New(memory.New(), nil)
	defer locks.Close()

	// One that is paused after it got its token, and goes on when its lock is another's.
	var paused fencing.Token
	for _, who := range []string{"first", "second"} {
		err := fencing.Do(ctx, locks, "report", func(ctx context.Context) error {
			token, err := fencing.TokenFor(ctx, "report")
			if err != nil {
				return err
			}
			if who == "first" {
				paused = token
				return nil
			}
			return guard.WriteFile(ctx, token, []byte("of the "+who), 0o644)
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	err = guard.WriteFile(ctx, paused, []byte("of the first"), 0o644)
	fmt.Println("refused:", errors.Is(err, fencing.ErrStale))
	text, err := os.ReadFile(filepath.Join(dir, "report.txt"))
	fmt.Println(string(text), err)

	// Output:
	// refused: true
	// of the second <nil>
}
