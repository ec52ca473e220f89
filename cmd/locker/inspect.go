package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/golockers/locker"
	"github.com/spf13/cobra"
)

func newInspect() *cobra.Command {
	var backend backendFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect [flags] NAME...",
		Short: "Show who holds the lock NAME, and for how long still",
		Long: strings.TrimSpace(`
Say for each NAME whether it is held, by whom, for how long still if it is not
renewed, with which fencing token, and how many callers wait for it, as far as
the lock service knows. The answer may be out of date when it arrives: a script
that may act only while nobody else does runs under the lock (locker run --try).

With --json, each line is one object: "name", "held" and, if the service knows
them and the lock has them, "label", "remaining_ms", "token", "waiters" (how
many) and "waiting" (the labels of at most 16). If the name is shared, "sharers"
is by how many, and "sharing" has the labels of at most 16 of them.`),
		Example: `  Who holds it?
    locker inspect backup

  For a script:
    locker inspect -b redis://redis.example:6379 --json backup | jq .held`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := inspect(cmd.Context(), &backend, args...)
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), all, asJSON)
		},
	}
	addBackendFlag(cmd, &backend)
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON, one object per line")
	return cmd
}

func inspect(ctx context.Context, backend *backendFlag, names ...string) (all []locker.State, err error) {
	for _, name := range names {
		if err := checkCall(name); err != nil {
			return nil, err
		}
	}
	err = ask(ctx, backend, func(ctx context.Context, client *locker.Client) error {
		for _, name := range names {
			state, err := client.Inspect(ctx, name)
			if err != nil {
				return err
			}
			all = append(all, state)
		}
		return nil
	})
	return all, err
}

// stateText is one line for people.
func stateText(s locker.State) string {
	waiting := ""
	if s.Waiters > 0 {
		waiting = fmt.Sprintf(", %d waiting", s.Waiters)
	}
	if len(s.Waiting) > 0 {
		waiting = cmp.Or(waiting, ", waiting") + ": " + printable(strings.Join(s.Waiting, ", "))
	}
	if !s.Held {
		return strconv.Quote(s.Name) + ": free" + waiting
	}
	text := strconv.Quote(s.Name) + ": held"
	if by := heldBy(s); by != "" {
		text += " by " + by
	}
	if s.Remaining > 0 {
		text += fmt.Sprintf(", for %v unless renewed", round(s.Remaining))
	}
	if s.Token != 0 {
		text += fmt.Sprintf(", token %d", s.Token)
	}
	return text + waiting
}

// heldBy is who holds the name, or who share it; "" if that is not known.
func heldBy(s locker.State) string {
	if s.Sharers == 0 {
		return printable(s.Label)
	}
	text := fmt.Sprintf("%d who share it", s.Sharers)
	if len(s.Sharing) > 0 {
		text += ": " + printable(strings.Join(s.Sharing, ", "))
	}
	return text
}

// printable quotes what a terminal should not be given as it is: whoever can
// write to the service chooses the label.
func printable(label string) string {
	for _, r := range label {
		if !unicode.IsPrint(r) {
			return strconv.Quote(label)
		}
	}
	return label
}
