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
			"From cron on several machines: one runs it, the others skip this round:",
			"LOCKER_BACKEND=redis://redis.example:6379 locker run --try nightly -- report.sh",
			"",
			"Wait a minute at most, and stop the command after an hour:",
			"locker run --wait 1m --max-hold 1h deploy -- make deploy",
			"",
			"Give the fencing token along with what the command writes:",
			`locker run orders -- sh -c 'put --if-newer-than "$LOCKER_TOKEN" orders.csv'`,
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
	flags.DurationVar(&f.ttl, "ttl", 0, "how long the lock outlives a locker that cannot renew it any more; see above for redlock (default 30s)")
	flags.DurationVar(&f.wait, "wait", 0, "how long to wait for the lock (default: for ever)")
	flags.BoolVar(&f.try, "try", false, "do not wait: exit with status 75 if another holds the lock")
	flags.DurationVar(&f.maxHold, "max-hold", 0, "end COMMAND when it has held the lock for so long (default: never)")
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
		return err
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
	case f.ttlGiven && f.ttl <= 0:
		return fmt.Errorf("a --ttl of %v is not possible: give a positive duration, such as 30s", f.ttl)
	}
	return nil
}

// checkCall reports a name or options that no backend takes: one in memory is
// asked first, so that a mistake is told whatever the state of the service.
func checkCall(name string, opts ...locker.Option) error {
	_, err := locker.New(memory.New(), nil).TryLock(context.Background(), name, opts...)
	var e *locker.Error
	if errors.As(err, &e) {
		return failure(e.Err) // without the lock that was only tried
	}
	return nil
}

var runLong = strings.TrimSpace(`
Hold the lock NAME while COMMAND runs. locker waits for the lock, runs COMMAND
with the terminal, stdin, stdout and stderr that it was given itself, and gives
the lock back when COMMAND ends. It writes nothing to stdout. A NAME that begins
with - has a -- in front of it: locker run [flags] -- NAME -- COMMAND.

COMMAND finds in its environment:
  LOCKER_NAME   the lock's name
  LOCKER_TOKEN  the fencing token, a decimal number that is greater for each
                holder than for the one before; unset if the backend has none

Exit status: that of COMMAND, 128+n if signal n ended it, and
   64  the command line, the name or the backend's URL is wrong
   69  the lock service cannot be used: out of reach, or it refuses
   74  the lock was lost while COMMAND ran, or --max-hold (max_hold in the URL)
       was reached
   75  another holds the lock (--try), or held it until --wait was over
  126  COMMAND cannot be executed
  127  COMMAND is not found
Locker has said on stderr what it was. COMMAND may have used the same numbers.

Signals (HUP, INT, QUIT, TERM, USR1, USR2, ALRM, WINCH, CONT) are passed on to
COMMAND's process group, which is one of its own. While locker still waits, the
first four of them end the wait.

If the lock cannot be kept, COMMAND must not go on. With a backend whose locks
expire, COMMAND's process group gets SIGTERM when a sixth of the TTL (at most
10s) is left and no renewal has got through, and SIGKILL before the TTL is over:
the next holder finds it gone. If the service says that the lock is gone there
is no such time left, and SIGKILL follows SIGTERM after 100ms. What leaves the
process group (setsid, a daemon), runs on another machine, or belongs to another
user (sudo) is not reached.

A locker run inside of COMMAND, which it knows by LOCKER_NAME, ends what it runs
when it is ended with COMMAND. What is not reached is what the inner COMMAND has
left in the background, unless it ended after a SIGTERM, and the inner COMMAND
with the file backend if LOCKER_NAME is not in its locker's environment (env -i,
sudo).

If locker itself is killed, the lock stays with COMMAND with the file backend,
as with flock(1): the descriptor is inherited, and the lock lasts until COMMAND
and what it has started have ended. With the other backends, and inside of
another locker run, COMMAND's process group is killed; with those whose locks
expire also if locker is only stopped (SIGSTOP) for so long that the lock would.

The lock service may take 10s at most for its first answer (or status 69), and
no longer than --wait, which for this is at least 1s.

With redlock, a TTL above 30s, by --ttl or in the URL, needs the same
restart_guard=DURATION in the URL of all clients, with the longest TTL of any.

The lock is for COMMAND. It is given back when COMMAND ends, also if something
that it has started goes on in the background.

Ctrl-C goes to COMMAND. If COMMAND dies of it, it goes to the process group of
locker then, when the lock is given back: a script or a loop around locker ends
as it would without locker. It goes on if COMMAND catches Ctrl-C and ends with an
exit status of its own. For that, locker itself ends by SIGINT where SIGINT has
ended COMMAND or the wait, if it has a terminal; to a shell that is the status
130 as well. Ctrl-Z does not stop COMMAND: it would keep the lock, and is
continued at once.

An empty --backend or LOCKER_BACKEND is an error (64): files on this host would
keep nobody out who was meant to share a lock service.

A password in --backend can be seen by everyone who can list processes: put the
URL into LOCKER_BACKEND instead. COMMAND inherits it, for a locker of its own.
`) + platformNotes
