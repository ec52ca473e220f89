//go:build linux || darwin

package file_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/file"
)

// The two Clients could as well be in two programs.
func Example() {
	ctx := context.Background()
	// a program uses its own directory, such as /var/lib/myprogram/locks
	dir, err := os.MkdirTemp("", "locks")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	night, err := locker.Open(ctx, "file://"+dir, &locker.Options{Label: "the night job"}, file.Openers)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer night.Close()
	day, err := locker.Open(ctx, "file://"+dir, nil, file.Openers)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer day.Close()

	err = locker.Do(ctx, night, "backup", func(ctx context.Context) error {
		_, err := day.TryLock(ctx, "backup")
		fmt.Println("held:", errors.Is(err, driver.ErrHeld))
		state, err := day.Inspect(ctx, "backup")
		fmt.Println("by:", state.Label)
		return err
	})
	fmt.Println("error:", err)

	// Output:
	// held: true
	// by: the night job
	// error: <nil>
}
