package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/clock"
	"github.com/spf13/cobra"
)

func newInspect() *cobra.Command {
	return newLook(&cobra.Command{
		Use:   "inspect [flags] NAME...",
		Short: "Show who holds the lock NAME, and for how long",
		Long: strings.TrimSpace(`
Show for each NAME who holds it, since when and for how long, its fencing token,
and who waits for it, as far as the lock service knows. For a NAME that is used
with --slots, show its slots, if the service lists them within 2 s. The answer
may be out of date by the time you read it: a script that must not act while
another one does should use locker run --try instead.

With --json, each line is one object: "name", "held" and, if they are known,
"label", "since", "remaining_ms", "kept_until" (by --min-hold), "token",
"waiters" (how many), "waiting" (the labels of at most 16), "sharers" (how many
share the lock), "sharing" (the labels of at most 16), and "slots" (objects).`),
		Example: `  Who holds it?
    locker inspect backup

  Several locks, in another lock service:
    locker inspect -b redis://redis.example:6379 backup report

  For a script:
    locker inspect --json backup | jq .held`,
		Args: cobra.MatchAll(takes(1, math.MaxInt), areNames),
	}, inspect, lines)
}

func newList() *cobra.Command {
	return newLook(&cobra.Command{
		Use:   "list [flags] [PREFIX]",
		Short: "List the names that are held or waited for",
		Long: strings.TrimSpace(`
List the names that begin with PREFIX and are held or waited for, as far as the
lock service knows; - means that it does not know. gpu/0, gpu/1 and so on are
the slots of gpu; whoever is next in line for one of 4 slots holds gpu/door4. If
the URL of the service has a prefix, only names with that prefix are listed, and
are shown without it.

If the service fails, or takes longer than --timeout, the names found so far are
listed, and the exit status is 69. --json is the same as for locker inspect.`),
		Example: `  What is locked?
    locker list

  The locks of one application:
    locker list billing/

  Their names, for a script:
    locker list --json billing/ | jq -r .name`,
		Args: takes(0, 1),
	}, list, table)
}

func newBreak() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "break [flags] NAME",
		Short: "Take the lock NAME away from its holder",
		Long: strings.TrimSpace(`
Show who holds the lock NAME, ask for confirmation, and take the lock away from
its holder, or from everyone who shares it. Do this only if the holder has
stopped working but still has the lock. A holder that is still working is not
stopped: it finds out at its next renewal, within a third of its TTL, and until
then two may act. Only a resource that checks fencing tokens rejects it. A lock
of the file backend cannot be broken: end its process instead.`),
		Example: `  Show the holder, ask, and take the lock away:
    locker break report

  The same for one slot of a name:
    locker break gpu/3

  Without confirmation, for a script:
    locker break --yes report`,
		Args: cobra.MatchAll(takes(1, 1), areNames),
	}
	q := newQuestion(cmd, openTimeout)
	yes := cmd.Flags().Bool("yes", false, "do not ask for confirmation")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var found []look
		err := q.ask(cmd.Context(), func(ctx context.Context, client *locker.Client) (err error) {
			found, err = inspect(ctx, client, args)
			return err
		})
		if err != nil {
			return err
		}
		noteUnseen(cmd, found)
		state, text := found[0].State, lineOf(found[0])
		switch {
		case len(found[0].slots) > 0:
			return usage(fmt.Errorf("%q has slots: name the one to break: %s", state.Name,
				strings.ReplaceAll(strings.TrimSpace(lines(found[0].slots)), "\n", "; ")))
		case !state.Held:
			_, err := fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		case !*yes && !isTerminal(int(os.Stdin.Fd())):
			return usage(fmt.Errorf("%s: not broken, since nobody can be asked here: run it in a terminal, or give "+
				"--yes", text))
		case !*yes:
			fmt.Fprintf(cmd.ErrOrStderr(), "%s.\nIf the holder still acts, two will act at once. Break the lock? [y/N] ",
				text)
			answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
			if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
				return &exitError{status: statusHeld, err: fmt.Errorf("%q is not broken", state.Name)}
			}
		}
		err = q.ask(cmd.Context(), func(ctx context.Context, client *locker.Client) error { return client.Break(ctx, state) })
		if err == nil {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "broken, "+text)
		}
		return err
	}
	return cmd
}

// newLook completes a command that writes about the names that it finds, also if it finds them with an error.
func newLook(cmd *cobra.Command, find func(context.Context, *locker.Client, []string) ([]look, error),
	text func([]look) string) *cobra.Command {
	q := newQuestion(cmd, openTimeout)
	asJSON := cmd.Flags().Bool("json", false, "write JSON, one object per line")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var all []look
		err := q.ask(cmd.Context(), func(ctx context.Context, client *locker.Client) (err error) {
			all, err = find(ctx, client, args)
			return err
		})
		noteUnseen(cmd, all)
		var out bytes.Buffer
		if *asJSON {
			for _, one := range all {
				_ = json.NewEncoder(&out).Encode(one)
			}
		} else if len(all) > 0 {
			out.WriteString(text(all))
		}
		_, failed := cmd.OutOrStdout().Write(out.Bytes())
		return cmp.Or(failed, err)
	}
	return cmd
}

// noteUnseen says of which names the slots were not looked at.
func noteUnseen(cmd *cobra.Command, all []look) {
	var names []string
	var why error
	for _, one := range all {
		if one.unseen != nil {
			names, why = append(names, strconv.Quote(one.Name)), one.unseen
		}
	}
	if e := (*locker.Error)(nil); errors.As(why, &e) {
		why = e.Err // without the name
	}
	if why != nil {
		fmt.Fprint(cmd.ErrOrStderr(), line(fmt.Sprintf("the slots of %s were not looked at: %s", strings.Join(names, ", "),
			plain(why))))
	}
}

// question is what a command asks a lock service, other than for a lock.
type question struct {
	backend backendFlag
	timeout clock.Flag
}

func newQuestion(cmd *cobra.Command, timeout time.Duration) *question {
	q := &question{timeout: clock.Flag(timeout)}
	cmd.Flags().VarP(&q.backend, "backend", "b", aboutBackend)
	cmd.Flags().Var(&q.timeout, "timeout", "how long the lock service may take")
	return q
}

// ask opens the lock service and does what asks it, all within the timeout.
func (q *question) ask(ctx context.Context, do func(context.Context, *locker.Client) error) error {
	if q.timeout <= 0 {
		return usage(errors.New("--timeout: it has to be more than zero"))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(q.timeout),
		fmt.Errorf("%w: the lock service was not done within %v (see --timeout)", locker.ErrUnavailable, &q.timeout))
	defer cancel()
	client, err := open(ctx, &q.backend, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := do(ctx, client); err != nil {
		return unanswered(ctx, err)
	}
	return nil
}

// unanswered is the failure of a question, which waits for no lock: one that takes too long is no other holder.
func unanswered(ctx context.Context, err error) *exitError {
	if cause := context.Cause(ctx); errors.Is(err, context.DeadlineExceeded) && errors.Is(cause, locker.ErrUnavailable) {
		err = cause
	}
	return failure(err)
}
