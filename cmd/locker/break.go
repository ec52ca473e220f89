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
		Short: "Take the lock NAME away from its holder",
		Long: strings.TrimSpace(`
Take the lock NAME away from its holder, and say who that was. This is for a
holder that is known not to act any more although its lock lasts: it hangs and
still renews, or it had a long TTL or --min-hold. If several share the lock, it
is taken away from all of them.

A holder that still acts is not stopped. It learns that its lock is gone at its
next renewal, after a third of its TTL; until then, two may act. Only a resource
that checks fencing tokens refuses the old holder.

locker shows the holder and asks first, unless --yes is given. A lock of the
file backend ends with its process and cannot be broken: end the process.`),
		Example: `  Show the holder, ask, and take the lock away:
    locker break nightly-report`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("write one NAME: locker break NAME")
			}
			return checkCall(args[0])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			found, err := inspect(cmd.Context(), &backend, name)
			if err != nil {
				return err
			}
			state := found[0]
			if !state.Held {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), stateText(state))
				return err
			}
			if !yes {
				if !isTerminal(int(os.Stdin.Fd())) {
					return usage(fmt.Errorf("%s: not broken, since nobody can be asked here: run it in a "+
						"terminal, or give --yes", stateText(state)))
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "%s.\nIf the holder still acts, two will act at once. Break "+
					"the lock? [y/N] ", stateText(state))
				answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
				if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
					return &exitError{status: statusHeld, err: fmt.Errorf("%q is not broken", name)}
				}
			}
			err = ask(cmd.Context(), &backend, func(ctx context.Context, client *locker.Client) error {
				return client.Break(ctx, state)
			})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "broken, "+stateText(state))
			return err
		},
	}
	addBackendFlag(cmd, &backend)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
