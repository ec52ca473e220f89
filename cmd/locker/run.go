package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
	"github.com/spf13/cobra"
)

// runFlags are the flags of locker run.
type runFlags struct {
	backend backendFlag
	ttl     time.Duration
	wait    time.Duration
	try     bool
	maxHold time.Duration
	minHold time.Duration
	quiet   bool
	outlive bool
	held    int // the exit status that says that another holds the lock

	waitGiven, ttlGiven, maxHoldGiven bool
}

func newRun() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] NAME -- COMMAND [ARG...]",
		Short: "Hold the lock NAME while COMMAND runs",
		Long:  runLong,
		Example: examples(
			"Never two at once; whoever comes second waits:",
			"locker run backup -- /usr/local/bin/backup.sh",
			"",
			"From cron, every hour, on several machines: one runs it, the others skip:",
			"export LOCKER_BACKEND=redis://redis.example:6379",
			"locker run --try -q --min-hold 55m report -- report.sh",
			"",
			"Wait a minute at most, and stop the command after an hour:",
			"locker run --wait 1m --max-hold 1h deploy -- make deploy",
		),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if dash := cmd.ArgsLenAtDash(); dash < 0 || dash == 0 && len(args) < 2 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
		Args: func(cmd *cobra.Command, args []string) error {
			_, _, err := split(args, cmd.ArgsLenAtDash())
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.waitGiven = cmd.Flags().Changed("wait")
			f.ttlGiven = cmd.Flags().Changed("ttl")
			f.maxHoldGiven = cmd.Flags().Changed("max-hold")
			name, command, err := split(args, cmd.ArgsLenAtDash())
			if err != nil {
				return err
			}
			return f.run(name, command)
		},
	}
	cmd.SetFlagErrorFunc(dashHint("locker run -- NAME -- COMMAND"))
	addBackendFlag(cmd, &f.backend)
	flags := cmd.Flags()
	flags.DurationVar(&f.ttl, "ttl", 0, "how long the lock outlives a locker that cannot\nrenew it any more (default 30s)")
	flags.DurationVar(&f.wait, "wait", 0, "how long to wait (default: for ever for a lock,\none TTL for a service that is out of reach)")
	flags.BoolVar(&f.try, "try", false, "do not wait: exit with status 75 if another\nholds the lock")
	flags.DurationVar(&f.maxHold, "max-hold", 0, "end COMMAND when it has held the lock for so\nlong (default: never)")
	flags.DurationVar(&f.minHold, "min-hold", 0, "keep the lock for so long from its grant, even\nif COMMAND, locker or the machine ends sooner")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "say nothing if another holds the lock, and\nnothing of waiting for it")
	flags.IntVarP(&f.held, "conflict-exit-code", "E", statusHeld, "exit status if another holds the lock,\nfrom 0 to 255")
	flags.BoolVar(&f.outlive, "outlive", false, "let COMMAND go on, and keep the lock, if locker\nis killed (file backend only)")
	return cmd
}

// split takes NAME -- COMMAND apart, or -- NAME -- COMMAND, where the NAME may
// begin with a dash. dash is how many of args stand before the first --, which
// is not among them; -1 if there was none.
func split(args []string, dash int) (name string, command []string, err error) {
	if dash == 0 && len(args) > 1 && args[1] == "--" {
		args, dash = append([]string{args[0]}, args[2:]...), 1
	}
	switch {
	case dash == 1 && len(args) > 1:
		return args[0], args[1:], nil
	case dash == 1:
		return "", nil, errors.New("there is no COMMAND after --")
	default:
		return "", nil, errors.New("write one NAME, then --, then the COMMAND: locker run NAME -- COMMAND [ARG...]")
	}
}

// dashHint says how a name is written that was taken for a flag.
func dashHint(how string) func(*cobra.Command, error) error {
	return func(_ *cobra.Command, err error) error {
		if strings.HasPrefix(err.Error(), "unknown ") {
			return fmt.Errorf("%w; if that is the NAME: %s", err, how)
		}
		return err
	}
}

// options are the settings of the lock that the flags ask for. They win over
// what the URL says.
func (f *runFlags) options() (opts []locker.Option) {
	if f.ttlGiven {
		opts = append(opts, locker.TTL(f.ttl))
	}
	if f.maxHoldGiven {
		opts = append(opts, locker.MaxHold(f.maxHold))
	}
	return opts
}

// run holds name while the command runs. Its error has the exit status.
func (f *runFlags) run(name string, command []string) error {
	if err := f.check(); err != nil {
		return usage(err)
	}
	if err := checkCall(name, f.options()...); err != nil {
		return err
	}
	// Nobody is to be kept out for a command that cannot run.
	path, err := lookUp(command[0])
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 16)
	notify(signals)
	defer signal.Stop(signals)

	s := &session{flags: f, name: name, signals: signals, notes: newNotes()}
	defer s.notes.flush()
	if err := s.acquire(command); err != nil {
		return f.conflict(err)
	}
	status, err := s.hold(path, command)
	if err != nil {
		s.notes.say("%v", err)
	}
	if status == 0 {
		return nil
	}
	return &exitError{status: status, death: s.death}
}

// check reports flags that no backend could make right.
func (f *runFlags) check() error {
	switch {
	case f.try && f.waitGiven:
		return errors.New("give --try or --wait, not both")
	case f.wait < 0:
		return fmt.Errorf("a --wait of %v is not possible: give a positive duration, or --try to not wait", f.wait)
	case f.held < 0 || f.held > 255:
		return fmt.Errorf("a --conflict-exit-code of %d is not possible: give one from 0 to 255", f.held)
	case f.minHold < 0 || f.maxHoldGiven && f.minHold > f.maxHold:
		return fmt.Errorf("a --min-hold of %v is not possible: give a positive duration, no longer than --max-hold", f.minHold)
	case f.ttlGiven && f.ttl <= 0:
		return fmt.Errorf("a --ttl of %v is not possible: give a positive duration, such as 30s", f.ttl)
	}
	return nil
}

// conflict gives an error that says that another holds the lock the status and
// the silence that were asked for.
func (f *runFlags) conflict(err error) error {
	var e *exitError
	if errors.As(err, &e) && e.status == statusHeld {
		e.status = f.held
		if f.quiet {
			e.err = nil
		}
	}
	return err
}

// checkCall reports a name or options that no backend takes: one in memory is
// asked first, so that a mistake is told whatever the state of the service.
func checkCall(name string, opts ...locker.Option) error {
	_, err := locker.New(memory.New(), nil).TryLock(context.Background(), name, opts...)
	var e *locker.Error
	if errors.As(err, &e) && !errors.Is(err, errors.ErrUnsupported) { // which another backend may support
		return failure(e.Err) // without the lock that was only tried
	}
	return nil
}

var runLong = strings.TrimSpace(`
Hold the lock NAME while COMMAND runs, and give it back when COMMAND ends.
COMMAND has this terminal, stdin, stdout and stderr; locker writes to stderr
only. In COMMAND's environment are LOCKER_NAME and, where the service has one,
LOCKER_TOKEN: the fencing token, a number that is greater for each holder.

If the lock is lost, COMMAND and what it has started are ended before another
gets the lock. They are ended, too, if locker itself is killed.

Exit status: that of COMMAND, 128+n if signal n ended it, and
   64  the command line, the name or the backend's URL is wrong
   69  the lock service cannot be used: out of reach, or it refuses
   74  the lock was lost while COMMAND ran, or --max-hold was reached
   75  another holds the lock (--try), or held it until --wait was over
  126  COMMAND cannot be executed
  127  COMMAND is not found

Signals, terminals, nested runs, containers and the limits of what is ended:
https://github.com/golockers/locker/blob/main/docs/run.md
`) + platformNotes
