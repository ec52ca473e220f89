package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
	"github.com/golockers/locker/slots"
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
	held    int // the exit status if another holds the lock
	slots   int // 0: a lock, and no slots
	shared  bool

	given func(flag string) bool
}

func newRun() *cobra.Command {
	var f runFlags
	var name string
	var command []string
	cmd := &cobra.Command{
		Use:   "run [flags] NAME -- COMMAND [ARG...]",
		Short: "Run COMMAND while holding the lock NAME",
		Long:  runLong,
		Example: `  Never run two at once; the second one waits:
    locker run backup -- /usr/local/bin/backup.sh

  From cron, every hour, on several machines: one runs it, the others skip it:
    export LOCKER_BACKEND=redis://redis.example:6379
    locker run --try -q --min-hold 55m report -- report.sh

  Wait at most a minute, and end the command after an hour:
    locker run --wait 1m --max-hold 1h deploy -- make deploy`,
		Args: func(cmd *cobra.Command, args []string) (err error) {
			name, command, err = split(args, cmd.ArgsLenAtDash())
			return err
		},
		RunE: func(*cobra.Command, []string) error { return f.run(name, command) },
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if flags := cmd.Flags(); flags.NArg() > 1 && flags.ArgsLenAtDash() < 0 {
			return errNoDashes // the flag is one of COMMAND's
		}
		return err
	})
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveDefault) // COMMAND may be a file
	addBackendFlag(cmd, &f.backend)
	flags := cmd.Flags()
	f.given = flags.Changed
	flags.DurationVar(&f.ttl, "ttl", 0, "the lock expires so long after its last renewal\n(default 30s)")
	flags.DurationVar(&f.wait, "wait", 0, "how long to wait, also for a service that is\nout of reach "+
		"(default: for ever for the lock,\none TTL for the service)")
	flags.BoolVar(&f.try, "try", false, "do not wait: exit with status 75 if another\nholds the lock")
	flags.DurationVar(&f.maxHold, "max-hold", 0, "end COMMAND before the lock has been held for\nso long "+
		"(default: never)")
	flags.DurationVar(&f.minHold, "min-hold", 0, "keep the lock at least so long from its grant,\neven if "+
		"COMMAND, locker or the machine ends")
	flags.IntVar(&f.slots, "slots", 0,
		"let so many run at once; LOCKER_SLOT has the\nnumber of each: 0, 1, 2 and so on")
	flags.BoolVar(&f.shared, "shared", false,
		"hold the lock together with others that give\n--shared; who runs without it is alone")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "write nothing if another holds the lock, and\nnothing "+
		"while waiting for it")
	flags.IntVarP(&f.held, "conflict-exit-code", "E", statusHeld,
		"exit status if another holds the lock,\nfrom 0 to 255")
	flags.BoolVar(&f.outlive, "outlive", false, "if locker is killed, let COMMAND go on and keep\nthe lock "+
		"(file backend only, not on Windows)")
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
	case dash < 0 && len(args) > 1:
		return "", nil, errNoDashes
	default:
		return "", nil, errors.New("write one NAME, then --, then the COMMAND: locker run NAME -- COMMAND " +
			"[ARG...]")
	}
}

var errNoDashes = errors.New("-- is missing before the COMMAND: type locker run NAME -- COMMAND [ARG...]")

// options are the settings of the lock from the flags. They override those of the
// URL.
func (f *runFlags) options() (opts []locker.Option) {
	if f.given("ttl") {
		opts = append(opts, locker.TTL(f.ttl))
	}
	if f.given("max-hold") {
		opts = append(opts, locker.MaxHold(f.maxHold))
	}
	if f.shared {
		opts = append(opts, locker.Shared())
	}
	return opts
}

// lockTTL is the TTL of the lock: of the flag, the URL, or the default.
func (f *runFlags) lockTTL() time.Duration {
	if f.given("ttl") {
		return f.ttl
	}
	return f.backend.duration("ttl", locker.DefaultTTL)
}

// longest is the longest hold, 0 if it has no bound, and the setting that says so.
func (f *runFlags) longest() (limit time.Duration, setting string) {
	if f.given("max-hold") {
		return f.maxHold, "--max-hold"
	}
	return f.backend.duration("max_hold", 0), "max_hold of the backend's URL"
}

// patience is how long an outage may last before the lock is held: --wait, or as for Lock
// the patience of the URL, or the TTL.
func (f *runFlags) patience() time.Duration {
	if f.try || f.given("wait") {
		return f.wait
	}
	return f.backend.duration("patience", f.lockTTL())
}

// run holds name while the command runs. Its error has the exit status.
func (f *runFlags) run(name string, command []string) error {
	if err := f.check(); err != nil {
		return usage(err)
	}
	if err := checkCall(name, f.options()...); err != nil {
		return err
	}
	// A command that cannot run must keep nobody out.
	path, err := lookUp(command[0])
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 16)
	notify(signals)
	defer signal.Stop(signals)

	s := &session{flags: f, name: name, signals: signals, woken: make(chan struct{}, 1),
		notes: newNotes()}
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

// tries reports whether the command does not wait for another holder.
func (f *runFlags) tries() bool { return f.try || f.given("wait") && f.wait == 0 }

// check reports flags that are wrong with every backend.
func (f *runFlags) check() error {
	switch {
	case f.try && f.given("wait"):
		return errors.New("give --try or --wait, not both")
	case f.wait < 0:
		return fmt.Errorf("a --wait of %v is not possible: give a positive duration, or --try to not "+
			"wait", f.wait)
	case f.outlive && runtime.GOOS == "windows":
		return errors.New("--outlive is not possible on Windows: COMMAND ends with locker there")
	case f.held < 0 || f.held > 255:
		return fmt.Errorf("a --conflict-exit-code of %d is not possible: give one from 0 to 255", f.held)
	case f.given("max-hold") && f.maxHold <= 0:
		return fmt.Errorf("a --max-hold of %v is not possible: give a positive duration", f.maxHold)
	case f.minHold < 0 || f.given("max-hold") && f.minHold > f.maxHold:
		return fmt.Errorf("a --min-hold of %v is not possible: give a positive duration, no longer than "+
			"--max-hold", f.minHold)
	case f.given("slots") && (f.slots < 1 || f.slots > slots.MaxSlots):
		return fmt.Errorf("%d --slots are not possible: give 1 to %d", f.slots, slots.MaxSlots)
	case f.slots > 0 && f.minHold > 0 && !f.tries():
		return errors.New("--slots with --min-hold needs --try: a command that waits asks for more slots " +
			"than it keeps")
	case f.slots > 0 && f.shared:
		return errors.New("give --slots or --shared, not both: each slot has one holder")
	case f.given("ttl") && f.ttl <= 0:
		return fmt.Errorf("a --ttl of %v is not possible: give a positive duration, such as 30s", f.ttl)
	}
	return nil
}

// conflict applies --conflict-exit-code and --quiet to an error that says that
// another holds the lock.
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

// checkCall reports a name or options that no backend takes. It asks a backend in
// memory, so that a mistake is reported whatever the state of the lock service.
func checkCall(name string, opts ...locker.Option) error {
	_, err := locker.New(memory.New(), nil).TryLock(context.Background(), name, opts...)
	var e *locker.Error
	if errors.As(err, &e) && !errors.Is(err, errors.ErrUnsupported) { // another backend may support it
		return failure(e.Err) // without the name of the lock in memory
	}
	return nil
}

var runLong = strings.TrimSpace(`
Run COMMAND while holding the lock NAME, and release it when COMMAND ends.
COMMAND has this terminal, stdin, stdout and stderr; locker writes to stderr
only. The environment of COMMAND has LOCKER_NAME and, if the service gives out
fencing tokens, LOCKER_TOKEN: a number that is greater for each holder than for
the one before (those who share the lock have the same one). A NAME that begins
with a dash: locker run -- NAME -- COMMAND.

If the lock is lost, locker ends COMMAND, and what COMMAND has started, before
anybody else gets the lock. They are ended as well if locker itself is killed.
On Linux, that includes what has left COMMAND's process group (timeout, setsid).

Exit status: that of COMMAND, 128+n if signal n ended it; 64 if the command line
is wrong, 69 if the lock service is out of reach, 74 if the lock could not be
kept until COMMAND ended, 75 if another holds the lock (--try) or held it until
--wait was over, 126 if COMMAND cannot be executed, 127 if it was not found.

Signals, terminals, nested runs, containers, and which processes are not ended:
https://github.com/golockers/locker/blob/main/docs/run.md
`) + platformNotes
