package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/golockers/locker"
)

func newInspect() *cobra.Command {
	return newLook(&cobra.Command{
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
		Args: cobra.MatchAll(takes(1, math.MaxInt), areNames),
	}, inspect)
}

func newList() *cobra.Command {
	return newLook(&cobra.Command{
		Use:   "list [flags] [PREFIX]",
		Short: "List the names that are held or waited for",
		Long: strings.TrimSpace(`
List the names that are held or waited for and begin with PREFIX: who holds
each, for how long still if it is not renewed, with which fencing token, and how
many callers wait for it, as far as the lock service knows. If the backend's URL
has a prefix, only names under that prefix are found, and are shown without it.
During a move, list each of the two services: the label of a holder with both
URLs ends with them, so that the list shows when the last one without is gone.
Names may come and go while they are listed. If the service fails, or is not
done within --timeout, the names found until then are listed, and the exit
status is 69.

With --json, each line is one object, as locker inspect --json writes it.`),
		Example: `  What is locked?
    locker list

  The names of one application, for a script:
    locker list --json billing/ | jq -r .name`,
		Args: takes(0, 1),
	}, func(ctx context.Context, client *locker.Client, prefix []string) (all []locker.State, failed error) {
		for st, err := range client.List(ctx, strings.Join(prefix, "")) {
			if err != nil {
				failed = err // the last that it yields
				break
			}
			all = append(all, st)
		}
		slices.SortFunc(all, func(a, b locker.State) int { return strings.Compare(a.Name, b.Name) })
		return all, failed
	})
}

// finder returns what it has found, also with an error.
type finder = func(ctx context.Context, client *locker.Client, args []string) ([]locker.State, error)

// newLook completes a command that writes a line about each name that it finds.
func newLook(cmd *cobra.Command, find finder) *cobra.Command {
	var backend backendFlag
	var asJSON bool
	timeout := limit(openTimeout)
	addBackendFlag(cmd, &backend)
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, &timeout)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := timeout.bound(cmd.Context())
		defer cancel()
		all, err := ask(ctx, &backend, args, find)
		if len(all) > 0 {
			err = cmp.Or(write(cmd.OutOrStdout(), all, asJSON), err)
		}
		return err
	}
	return cmd
}

func newBreak() *cobra.Command {
	var backend backendFlag
	var yes bool
	timeout := limit(openTimeout)
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
		Args: cobra.MatchAll(takes(1, 1), areNames),
	}
	addBackendFlag(cmd, &backend)
	addTimeoutFlag(cmd, &timeout)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := timeout.bound(cmd.Context())
		defer cancel()
		found, err := ask(ctx, &backend, args, inspect)
		if err != nil {
			return err
		}
		state, text := found[0], stateText(found[0])
		if !state.Held {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		}
		if !yes {
			if !isTerminal(int(os.Stdin.Fd())) {
				return usage(fmt.Errorf("%s: not broken, since nobody can be asked here: run it in a "+
					"terminal, or give --yes", text))
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s.\nIf the holder still acts, two will act at once. Break "+
				"the lock? [y/N] ", text)
			answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
			if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
				return &exitError{status: statusHeld, err: fmt.Errorf("%q is not broken", state.Name)}
			}
		}
		ctx, cancel = timeout.bound(cmd.Context()) // anew: somebody was asked
		defer cancel()
		_, err = ask(ctx, &backend, args,
			func(ctx context.Context, client *locker.Client, _ []string) ([]locker.State, error) {
				return nil, client.Break(ctx, state)
			})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "broken, "+text)
		return err
	}
	return cmd
}

// ask opens the lock service and calls find, all before the deadline of ctx, or within openTimeout if it has none.
// What it has found comes with its error, too.
func ask(ctx context.Context, backend *backendFlag, args []string, find finder) ([]locker.State, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		limited, cancel := limit(openTimeout).bound(ctx)
		defer cancel()
		ctx = limited
	}
	client, err := open(ctx, backend, nil)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	all, err := find(ctx, client, args)
	if err != nil {
		return all, unanswered(ctx, err)
	}
	return all, nil
}

// limit is the value of --timeout.
type limit time.Duration

func (l *limit) String() string { return time.Duration(*l).String() }
func (l *limit) Type() string   { return "DURATION" }

func (l *limit) Set(value string) error {
	d, err := time.ParseDuration(value)
	if err == nil && d <= 0 {
		err = errors.New("it has to be more than zero")
	}
	*l = limit(d)
	return err
}

func addTimeoutFlag(cmd *cobra.Command, timeout *limit) {
	cmd.Flags().Var(timeout, "timeout", "how long the lock service may take")
}

// bound is ctx for one question.
func (l limit) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, time.Duration(l),
		fmt.Errorf("%w: the lock service was not done within %v (see --timeout)", locker.ErrUnavailable, &l))
}

// unanswered is the failure of a question, which waits for no lock: one that takes too long is no other holder.
func unanswered(ctx context.Context, err error) *exitError {
	if cause := context.Cause(ctx); errors.Is(err, context.DeadlineExceeded) && errors.Is(cause, locker.ErrUnavailable) {
		err = cause
	}
	return failure(err)
}

// inspect is the finder of names.
func inspect(ctx context.Context, client *locker.Client, names []string) (all []locker.State, err error) {
	for _, name := range names {
		state, err := client.Inspect(ctx, name)
		if err != nil {
			return all, err
		}
		all = append(all, state)
	}
	return all, nil
}

// areNames refuses names that no lock has, whatever the service.
func areNames(_ *cobra.Command, names []string) error {
	for _, name := range names {
		if err := checkCall(name); err != nil {
			return err
		}
	}
	return nil
}

// write writes a line about each name. The help of locker inspect documents the JSON.
func write(w io.Writer, all []locker.State, asJSON bool) error {
	var out bytes.Buffer
	for _, s := range all {
		if !asJSON {
			fmt.Fprintln(&out, stateText(s))
			continue
		}
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
		}{s.Name, s.Held, s.Label, 0, s.Token, nil, s.Waiting, s.Sharers, s.Sharing}
		if s.Remaining > 0 {
			o.Remaining = max(1, s.Remaining.Milliseconds())
		}
		if s.Waiters >= 0 {
			o.Waiters = &s.Waiters
		}
		_ = json.NewEncoder(&out).Encode(o)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// stateText is one line for people.
func stateText(s locker.State) string {
	text := strconv.Quote(s.Name) + ": free"
	if s.Held {
		text = strconv.Quote(s.Name) + ": held"
		if by := heldBy(s); by != "" {
			text += " by " + by
		}
		if s.Remaining > 0 {
			text += fmt.Sprintf(", for %v unless renewed", round(s.Remaining))
		}
		if s.Token != 0 {
			text += fmt.Sprintf(", token %d", s.Token)
		}
	}
	switch {
	case s.Waiters > 0:
		text += fmt.Sprintf(", %d waiting", s.Waiters)
	case len(s.Waiting) > 0:
		text += ", waiting"
	}
	if len(s.Waiting) > 0 {
		text += ": " + printable(strings.Join(s.Waiting, ", "))
	}
	return text
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
	if strings.ContainsFunc(label, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(label)
	}
	return label
}

func addJSONFlag(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "write JSON, one object per line")
}
