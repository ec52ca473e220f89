package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/golockers/locker"
	"github.com/spf13/cobra"
)

// named is the state of one name.
type named struct {
	name string
	locker.State
}

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
With two URLs, the list says on which service each name is held. During a move
this shows when the last program with only one URL is gone.

Names may come and go while they are listed. Exit status: 0, also if there are
none; 64 if the command line or the URL is wrong; 69 if the lock service cannot
be used or cannot list its locks.

With --json, each line is one object, as locker inspect --json writes it.`),
		Example: examples(
			"What is locked?",
			"locker list",
			"",
			"The names of one application, for a script:",
			"locker list --json billing/ | jq -r .name",
		),
		Args:              atMostOne("PREFIX"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := strings.Join(args, "")
			var all []named
			err := ask(cmd.Context(), &backend, func(ctx context.Context, client *locker.Client) error {
				for e, err := range client.List(ctx, prefix) {
					if err != nil {
						return err
					}
					all = append(all, named{e.Name, e.State})
				}
				return nil
			})
			if err != nil {
				return err
			}
			slices.SortFunc(all, func(a, b named) int { return strings.Compare(a.name, b.name) })
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), all)
			}
			return writeTable(cmd.OutOrStdout(), all)
		},
	}
	cmd.SetFlagErrorFunc(dashHint("locker list -- PREFIX"))
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
		return failure(err)
	}
	return nil
}

func writeTable(w io.Writer, all []named) error {
	if len(all) == 0 {
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	where := slices.ContainsFunc(all, func(n named) bool { return n.Where != "" })
	heading := "NAME\tHOLDER\tFOR STILL\tTOKEN\tWAITING"
	if where { // there are two services
		heading += "\tHELD ON"
	}
	fmt.Fprintln(tw, heading)
	for _, n := range all {
		by, remaining, token, waiting := "-", "-", "-", "-"
		if n.Held {
			by = cmp.Or(heldBy(n), "?")
		}
		if n.Remaining > 0 {
			remaining = round(n.Remaining).String()
		}
		if n.Token != 0 {
			token = strconv.FormatUint(n.Token, 10)
		}
		if n.Waiters >= 0 {
			waiting = strconv.Itoa(n.Waiters)
		}
		if where && len(n.Waiting) > 0 { // the labels say with which URLs they came
			waiting = strings.TrimPrefix(waiting+": ", "-: ") + printable(strings.Join(n.Waiting, ", "))
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s", printable(n.name), by, remaining, token, waiting)
		if where {
			fmt.Fprintf(tw, "\t%s", cmp.Or(printable(n.Where), "-"))
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

// writeJSON writes one object per line for each name. The help of locker inspect
// documents the fields.
func writeJSON(w io.Writer, all []named) error {
	out := json.NewEncoder(w)
	for _, n := range all {
		o := struct {
			Name      string   `json:"name"`
			Held      bool     `json:"held"`
			Label     *string  `json:"label"`
			Remaining *int64   `json:"remaining_ms"`
			Token     *uint64  `json:"token"`
			Waiters   *int     `json:"waiters"`
			Waiting   []string `json:"waiting,omitempty"`
			Sharers   int      `json:"sharers,omitempty"`
			Sharing   []string `json:"sharing,omitempty"`
			Where     string   `json:"where,omitempty"`
		}{Name: n.name, Held: n.Held, Waiting: n.Waiting, Sharers: n.Sharers, Sharing: n.Sharing, Where: n.Where}
		if n.Label != "" {
			o.Label = &n.Label
		}
		if n.Remaining > 0 {
			ms := max(1, n.Remaining.Milliseconds())
			o.Remaining = &ms
		}
		if n.Token != 0 {
			o.Token = &n.Token
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
