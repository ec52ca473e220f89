package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/golockers/locker"
	"github.com/golockers/locker/bridge"
	"github.com/spf13/cobra"
)

func newList() *cobra.Command {
	var backend backendFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list [flags] [PREFIX]",
		Short: "List the names that are held or waited for",
		Long: strings.TrimSpace(`
List the names that are held or waited for and begin with PREFIX: who holds
each, for how long still if it is not renewed, with which fencing token, and how
many callers wait for it, as far as the lock service knows. If the backend's URL
has a prefix, only names under that prefix are found, and are shown without it.
During a move, list each of the two services: the label of a holder with both
URLs ends with them, so that the list shows when the last one without is gone.
Names may come and go while they are listed.

With --json, each line is one object, as locker inspect --json writes it.`),
		Example: `  What is locked?
    locker list

  The names of one application, for a script:
    locker list --json billing/ | jq -r .name`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := strings.Join(args, "")
			var all []locker.State
			err := ask(cmd.Context(), &backend, func(ctx context.Context, client *locker.Client) error {
				for st, err := range client.List(ctx, prefix) {
					if err != nil {
						return err
					}
					all = append(all, st)
				}
				return nil
			})
			if err != nil {
				return err
			}
			slices.SortFunc(all, func(a, b locker.State) int { return strings.Compare(a.Name, b.Name) })
			return write(cmd.OutOrStdout(), all, asJSON)
		},
	}
	addBackendFlag(cmd, &backend)
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON, one object per line")
	return cmd
}

// ask opens the lock service and calls f, all within openTimeout.
func ask(ctx context.Context, backend *backendFlag, f func(context.Context, *locker.Client) error) error {
	client, err := open(ctx, backend, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := f(ctx, client); err != nil {
		address, _ := backend.address()
		if urls, _ := bridge.ParseURLs(address); len(urls) == 2 && errors.Is(err, errors.ErrUnsupported) {
			err = fmt.Errorf("%w: ask each of the two services by its own URL, with --backend", err)
		}
		return failure(err)
	}
	return nil
}

// write writes a line about each name.
func write(w io.Writer, all []locker.State, asJSON bool) error {
	if asJSON {
		return writeJSON(w, all)
	}
	for _, n := range all {
		if _, err := fmt.Fprintln(w, stateText(n)); err != nil {
			return err
		}
	}
	return nil
}

// writeJSON writes one object per line for each name. The help of locker inspect
// documents the fields.
func writeJSON(w io.Writer, all []locker.State) error {
	out := json.NewEncoder(w)
	for _, n := range all {
		o := struct {
			Name      string   `json:"name"`
			Held      bool     `json:"held"`
			Label     string   `json:"label,omitempty"`
			Remaining int64    `json:"remaining_ms,omitempty"`
			Token     uint64   `json:"token,omitempty"`
			Waiters   *int     `json:"waiters,omitempty"`
			Waiting   []string `json:"waiting,omitempty"`
			Sharers   int      `json:"sharers,omitempty"`
			Sharing   []string `json:"sharing,omitempty"`
		}{n.Name, n.Held, n.Label, 0, n.Token, nil, n.Waiting, n.Sharers, n.Sharing}
		if n.Remaining > 0 {
			o.Remaining = max(1, n.Remaining.Milliseconds())
		}
		if n.Waiters >= 0 {
			o.Waiters = &n.Waiters
		}
		if err := out.Encode(o); err != nil {
			return err
		}
	}
	return nil
}
