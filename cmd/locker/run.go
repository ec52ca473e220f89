package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/spelling"
	"github.com/golockers/locker/internal/vocabulary"
	"github.com/golockers/locker/memory"
	"github.com/golockers/locker/slots"
	"github.com/spf13/cobra"
)

// runFlags are the flags of locker run.
type runFlags struct {
	backend backendFlag
	require []string
	held    int // the exit status if another holds the lock
	slots   int // 0: a lock, and no slots

	ttl, wait, maxHold, minHold time.Duration
	try, quiet, outlive, shared bool

	given func(flag string) bool
}

func newRun() *cobra.Command {
	var f runFlags
	var name string
	var command []string
	cmd := &cobra.Command{
		Use:   "run [flags] NAME -- COMMAND [ARG...]",
		Short: "Run COMMAND while holding the lock NAME",
		Long:  strings.TrimSpace(runLong) + requirements() + platformNotes,
		Example: `  Run one backup at a time; the second waits for the first:
    locker run backup -- /usr/local/bin/backup.sh

  Wait for a minute at most, and end the command after an hour:
    locker run --wait 1m --max-hold 1h deploy -- make deploy

  Once per hour on one of many hosts, in the crontab of each:
    LOCKER_BACKEND=redis://redis.example:6379
    PATH=/usr/local/bin:/usr/bin:/bin
    5 * * * * locker run --try -q --min-hold 55m report -- report.sh`,
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
	flags := cmd.Flags()
	f.given = flags.Changed
	flags.VarPF(&helpFlag{words: flags.NArg}, "help", "h", "help for run").NoOptDefVal = "true"
	flags.VarP(&f.backend, "backend", "b", aboutBackend)
	flags.StringSliceVar(&f.require, "require", nil, "refuse a service that does not promise `WORDS`")
	flags.Var((*clock.Flag)(&f.ttl), "ttl", "time to live after a renewal (default 30s)")
	flags.Var((*clock.Flag)(&f.wait), "wait", "wait no longer than this (default: no limit)")
	flags.BoolVar(&f.try, "try", false, "do not wait: exit with 75 if the lock is held")
	flags.Var((*clock.Flag)(&f.maxHold), "max-hold", "end COMMAND once it has held the lock this long")
	flags.Var((*clock.Flag)(&f.minHold), "min-hold", "keep the lock this long even if COMMAND ends")
	flags.IntVar(&f.slots, "slots", 0, "allow `N` at once; LOCKER_SLOT is 0 to N-1")
	flags.BoolVar(&f.shared, "shared", false, "share the lock with other --shared runs")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "do not report that the lock is held")
	flags.IntVarP(&f.held, "conflict-exit-code", "E", statusHeld, "exit with `N` if the lock is held")
	flags.BoolVar(&f.outlive, "outlive", false, "let COMMAND outlive a killed locker (file only)")
	return cmd
}

// helpFlag is --help. After the first word of a COMMAND without its --, it is a flag of COMMAND's: the help, with status
// 0, would look like a job that has run.
type helpFlag struct {
	words func() int // how many stand before the flag
	asked bool
}

func (h *helpFlag) String() string { return strconv.FormatBool(h.asked) }
func (h *helpFlag) Type() string   { return "bool" }

func (h *helpFlag) Set(text string) (err error) {
	if h.words() > 1 {
		return errNoDashes
	}
	h.asked, err = strconv.ParseBool(text)
	return err
}

// split takes NAME -- COMMAND apart, or -- NAME -- COMMAND, where the NAME may begin with a dash. dash is how
// many of args stand before the first --, which is not among them; -1 if there was none.
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
		return "", nil, errors.New("type locker run NAME -- COMMAND [ARG...], with one NAME")
	}
}

var errNoDashes = errors.New("-- is missing before the COMMAND: type locker run NAME -- COMMAND [ARG...]")

// options are the settings of the lock from the flags. They override those of the URL.
func (f *runFlags) options() (opts []locker.Option) {
	if f.given("ttl") {
		opts = append(opts, locker.TTL(f.ttl))
	}
	if f.given("max-hold") {
		opts = append(opts, locker.MaxHold(f.maxHold))
	}
	if f.minHold > 0 {
		opts = append(opts, locker.MinHold(f.minHold))
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

// outageTimeout is how long an outage may last before the lock is held: as --wait or the URL says, or the TTL.
func (f *runFlags) outageTimeout() time.Duration {
	if f.try || f.given("wait") {
		return f.wait
	}
	return f.backend.duration("outage_timeout", f.lockTTL())
}

// run holds name while the command runs. Its error has the exit status.
func (f *runFlags) run(name string, command []string) error {
	if err := f.check(); err != nil {
		return usage(err)
	}
	if err := checkCall(name, f.slots, f.options()...); err != nil {
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
		notes: newNotes(), began: time.Now()}
	defer s.notes.flush()
	if address, err := f.backend.address(); err == nil && address == "" && (f.tries() || f.minHold > 0) {
		// cron and systemd read no profile: each of several hosts would run its job, and report success.
		s.notes.say("this locks on this host only: for several hosts, set LOCKER_BACKEND or give --backend " +
			"(--backend file:///DIR if one host is meant)")
	}
	if err := s.acquire(command); err != nil {
		var e *exitError
		if errors.As(err, &e) && e.status == statusHeld {
			if e.status = f.held; f.quiet {
				e.err = nil
			}
		}
		return err
	}
	status, err := s.hold(path, command)
	if err != nil {
		s.notes.say("%v", err)
	}
	return &exitError{status: status, death: s.death}
}

// tries reports whether the command does not wait for another holder.
func (f *runFlags) tries() bool { return f.try || f.given("wait") && f.wait == 0 }

// check reports flags that are wrong with every backend.
func (f *runFlags) check() error {
	for _, mistake := range []struct {
		made bool
		says string
	}{
		{f.try && f.given("wait"), "give --try or --wait, not both"},
		{f.wait < 0, "--wait: give a positive duration, or --try to not wait"},
		{f.given("ttl") && f.ttl <= 0, "--ttl: give a positive duration, such as 30s"},
		{f.given("max-hold") && f.maxHold <= 0, "--max-hold: give a positive duration"},
		{f.minHold < 0, "--min-hold: give a positive duration"},
		{f.given("max-hold") && f.minHold > f.maxHold, "--min-hold is longer than --max-hold"},
		{f.given("require") && len(f.require) == 0, "--require: it is empty, perhaps an unset variable"},
		{f.held < 0 || f.held > 255, "--conflict-exit-code: give one from 0 to 255"},
		{f.given("slots") && (f.slots < 1 || f.slots > slots.MaxSlots), fmt.Sprint("--slots: give 1 to ", slots.MaxSlots)},
		{f.slots > 0 && f.shared, "give --slots or --shared, not both: each slot has one holder"},
		{f.slots > 0 && f.minHold > 0 && !f.tries(), "--slots with --min-hold needs --try: a command that waits asks " +
			"for more slots than it keeps"},
		{f.outlive && runtime.GOOS == "windows", "--outlive: on Windows, COMMAND always ends with locker"},
	} {
		if mistake.made {
			return errors.New(mistake.says)
		}
	}
	return unknownWord(f.require)
}

// checkCall refuses a name or options that no service takes, whatever the state of the service: it asks for a lock,
// or a slot, in memory.
func checkCall(name string, n int, opts ...locker.Option) error {
	client, err := locker.New(memory.New(), nil)
	switch {
	case err != nil:
	case n > 0:
		_, err = slots.TryLock(context.Background(), client, name, n, opts...)
	default:
		_, err = client.TryLock(context.Background(), name, opts...)
	}
	var e *locker.Error
	if errors.Is(err, locker.ErrInvalid) && errors.As(err, &e) && !errors.Is(err, errors.ErrUnsupported) {
		return usage(e.Err) // without the lock in memory
	}
	return nil
}

// areNames refuses arguments that are no names of locks.
func areNames(_ *cobra.Command, names []string) error {
	for _, name := range names {
		if err := checkCall(name, 0); err != nil {
			return err
		}
	}
	return nil
}

// refused reports what the lock service does not promise or support. It names the flag that asks for it.
func (f *runFlags) refused(client *locker.Client) error {
	g := client.Guarantees()
	for _, term := range vocabulary.Terms() {
		if slices.Contains(f.require, term.Word) && locker.Require(client, term.Want) != nil {
			return fmt.Errorf("--require %s: %s does not promise that %s; locker backends shows which "+
				"services do", term.Word, g.Backend, term.Means)
		}
	}
	switch {
	case f.outlive && g.Exclusion != locker.ExclusionKernel:
		return errors.New("--outlive: only a lock of the file backend lasts without locker: leave " +
			"the flag out, or give --backend file:///DIR")
	case f.shared && g.Shared == locker.SharingNone:
		return fmt.Errorf("--shared: %s has no shared locks", g.Backend)
	case f.minHold > g.MaxMinHold:
		return fmt.Errorf("--min-hold: %s keeps a lock without its holder for %s at most", g.Backend, clock.Text(g.MaxMinHold))
	}
	return nil
}

// requirements are the words of --require, for the help.
func requirements() string {
	text := "\n\nThe WORDS of --require:\n"
	for _, term := range vocabulary.Terms() {
		text += fmt.Sprintf("\n  %-13s %s", term.Word, strings.TrimPrefix(term.Means, "a held lock "))
	}
	return text
}

func unknownWord(words []string) error {
	var known []string
	for _, term := range vocabulary.Terms() {
		known = append(known, term.Word)
	}
	for _, word := range words {
		if !slices.Contains(known, word) {
			return fmt.Errorf("--require: there is no word %q: it takes %s%s", word, strings.Join(known, ", "),
				spelling.Meant(word, known))
		}
	}
	return nil
}

const runLong = `
Run COMMAND while holding the lock NAME, and release the lock when COMMAND ends.
If the lock is lost, locker ends COMMAND and what it has started. That is before
anyone else gets the lock, unless the service breaks what its promises rest on
(locker backends): one Redis that fails over or restarts empty does.

COMMAND finds NAME in LOCKER_NAME and, if the service has fencing tokens, its
token in LOCKER_TOKEN: a number greater than that of any earlier holder.

Exit status: that of COMMAND, or 128+n if signal n ended it; 64 if the command
line is wrong, 69 if the lock service is out of reach, 74 if the lock could not
be kept until COMMAND ended, 75 if another holds it (--try, --wait), 126 if
COMMAND cannot be executed, 127 if it was not found.

More: https://github.com/golockers/locker/blob/main/docs/run.md`
