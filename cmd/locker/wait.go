package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/clock"
	"github.com/spf13/cobra"
)

// The pauses between two looks at a name that is held: the first, and the longest.
const (
	firstLook = 50 * time.Millisecond
	lastLook  = time.Second
)

func newWait() *cobra.Command {
	var backend backendFlag
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "wait [flags] NAME...",
		Short: "Wait until each NAME has been free, without locking it",
		Long: strings.TrimSpace(`
Wait until each NAME has been free at some moment. This neither locks the name
nor joins its queue. locker looks about once a second: it may miss a lock that
is free for a shorter time, and another may hold the lock again when locker
ends. Work that must not run twice at once runs under the lock, with locker run.`),
		Example: `  Turn the machine off when the backup has ended:
    locker wait backup && systemctl poweroff

  Wait for five minutes at most:
    locker wait --wait 5m deploy migrate`,
		Args: cobra.MatchAll(cobra.MinimumNArgs(1), areNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if wait < 0 {
				return usage(fmt.Errorf("a --wait of %v is not possible: give a positive duration", wait))
			}
			client, err := open(cmd.Context(), &backend, nil)
			if err != nil {
				return err
			}
			defer client.Close()
			ctx := cmd.Context()
			if wait > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, wait)
				defer cancel()
			}
			for _, name := range args {
				if err := waitFree(ctx, client, name); err != nil {
					return failure(err)
				}
			}
			return nil
		},
	}
	addBackendFlag(cmd, &backend)
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait (default: for ever)")
	return cmd
}

// waitFree returns when name is free.
func waitFree(ctx context.Context, client *locker.Client, name string) error {
	for n := 0; ; n++ {
		asking, cancel := context.WithTimeout(ctx, openTimeout)
		state, err := client.Inspect(asking, name)
		cancel()
		switch {
		case ctx.Err() != nil && (err == nil || errors.Is(err, context.DeadlineExceeded)):
			return fmt.Errorf("%q: %w", name, locker.ErrHeld)
		case err != nil:
			return err
		case !state.Held:
			return nil
		}
		_ = clock.Sleep(ctx, clock.Jitter(clock.BackOff(n, firstLook, lastLook)))
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", stateText(state), locker.ErrHeld)
		}
	}
}
