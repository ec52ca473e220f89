package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/golockers/locker"
	"github.com/spf13/cobra"
)

func newBreak() *cobra.Command {
	var backend backendFlag
	var yes bool
	cmd := &cobra.Command{
		Use:   "break [flags] NAME",
		Short: "Take the lock NAME from its holder",
		Long: strings.TrimSpace(`
Take the lock NAME from whoever holds it, and say who that was. It is for a
holder that is known not to act any more and whose lock would last: one that
hangs and still renews, or one with a long TTL or --min-hold.

A holder that does act is not stopped. It learns that its lock is gone when it
next renews, after a third of its TTL, and until then two may act. Where the
resource checks fencing tokens, it refuses the old holder as soon as the next
one has written; nothing else does.

locker shows the holder and asks first; --yes does not ask. A lock of the file
backend ends with its process and cannot be broken: end the process.

Exit status: 0 if it was broken or was free; 64 if the command line or the URL
is wrong; 69 if the lock service cannot be used or cannot do it; 75 if the
answer was not yes.`),
		Example: examples(
			"Whose is it, and away with it?",
			"locker break nightly-report",
		),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("write one NAME: locker break NAME")
			}
			return checkCall(args[0])
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if !yes {
				found, err := inspect(cmd.Context(), &backend, name)
				if err != nil {
					return err
				}
				state := found[0]
				if !state.Held {
					_, err := fmt.Fprintln(cmd.OutOrStdout(), stateText(state))
					return err
				}
				if !isTerminal(int(os.Stdin.Fd())) {
					return usage(fmt.Errorf("%s: it is not broken without an answer: run it in a terminal, or with --yes", stateText(state)))
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "%s.\nIf it still acts, two will act at once. Break it? [y/N] ", stateText(state))
				answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
				if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
					return &exitError{status: statusHeld, err: fmt.Errorf("%q is not broken", name)}
				}
			}
			var broken locker.State
			err := ask(cmd.Context(), &backend, func(ctx context.Context, client *locker.Client) (err error) {
				broken, err = client.Break(ctx, name)
				return err
			})
			if err != nil {
				return err
			}
			text := stateText(named{name, broken})
			if broken.Held {
				text = "broken, " + text
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.SetFlagErrorFunc(dashHint("locker break -- NAME"))
	addBackendFlag(cmd, &backend)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
