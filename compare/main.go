package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/golockers/locker/compare/internal/check"
	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/compare/internal/report"
	"github.com/golockers/locker/driver"
)

// Exit statuses of [Main].
const (
	ExitHeld        = 0   // all that is declared, or required, held
	ExitBroken      = 1   // something declared, or required, was broken
	ExitNotTried    = 2   // nothing was broken, and not everything required could be tried
	ExitUsage       = 64  // the command line or a URL is wrong
	ExitUnavailable = 69  // no service could be reached or came back, or the history cannot be written
	ExitInterrupted = 130 // Ctrl-C, and nothing was broken by then
)

// Main is a whole command: it compares the services that openers open, as `locker compare` does, with the
// arguments of the process, and exits. The maker of a backend gets a table of it with
//
//	func main() { compare.Main(driver.Openers{"mine": mine.Open, "redis": single.Open}) }
func Main(openers driver.Openers) {
	PlayHolder(openers)
	os.Exit(execute(openers, os.Args[1:], os.Stdout, os.Stderr))
}

// execute is [Main] without the end of the process: it returns the exit status.
func execute(openers driver.Openers, args []string, out, errs io.Writer) int {
	cmd := Command(openers)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(errs)
	err := cmd.Execute()
	var status StatusError
	switch {
	case err == nil:
		return ExitHeld
	case errors.As(err, &status):
		return int(status)
	}
	fmt.Fprintf(errs, "compare: %s (see --help)\n", strings.TrimPrefix(err.Error(), "compare: "))
	return ExitUsage
}

// StatusError is the error of a [Command] that ended with this exit status: what there was to say has been
// said.
type StatusError int

func (s StatusError) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Command is `locker compare` for the services that openers open, as a part of another command. Its other
// errors are about the command line. The program calls [PlayHolder] first.
func Command(openers driver.Openers) *cobra.Command {
	p := &plan{openers: openers, shell: shell}
	var faults, heals []string
	cmd := &cobra.Command{
		Use:   "compare [flags] [SERVICE | URL]...",
		Short: "Test what lock services guarantee, under real faults",
		Long: strings.TrimSpace(`
Compare what lock services guarantee, on real servers and under real faults.

It starts, on this machine and on loopback only, every service that is installed
(or those named), and breaks it in every way it can. With URLs it tries services
that exist already: only its own clients are cut off, stopped and killed, it
takes locks under a prefix of its own, and servers fail only where --fault gives
a command for it.

Exit status: 0 if all that is declared (or required) held; 1 if something
declared was broken; 2 if something required could not be tried; 64 if the
command line is wrong; 69 if no service could be reached, or the history cannot
be written; 130 after Ctrl-C.`),
		Example: strings.TrimPrefix(`
  Everything there is, in some minutes:
    locker compare

  These two, for longer:
    locker compare --for 20m redis etcd

  Services that exist already, and a fault that you can bring about:
    locker compare redis://staging:6379 etcd://a,b,c \
      --fault 'restart=kubectl rollout restart sts/redis &&
               kubectl rollout status sts/redis'

  A gate in a pipeline:
    locker compare --require exclusion,told,tokens redis://staging:6379`, "\n"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.urls = args
			if err := p.parse(faults, heals, cmd.Flags().Changed("ttl")); err != nil {
				return err
			}
			if status := p.main(cmd.OutOrStdout(), cmd.ErrOrStderr()); status != ExitHeld {
				return StatusError(status)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.DurationVar(&p.tries, "for", 3*time.Minute,
		"try for this `time`: everything once, and then again\nand again; 0s: everything once")
	f.DurationVar(&p.ttl, "ttl", 0, "the `TTL` of the locks (default: 1s in the lab,\n2s with URLs, longer on a busy machine)")
	f.StringVar(&p.dir, "out", "", "`directory` for the report and the history\n(default: a new temporary one)")
	f.StringSliceVar(&p.require, "require", nil,
		"`rules` that have to be tried and to hold for\nevery service, such as exclusion,told,tokens")
	f.StringSliceVar(&p.only, "only", nil, "try only these `faults`, or healthy")
	f.StringArrayVar(&faults, "fault", nil,
		"`NAME=COMMAND` that brings a fault of servers\nabout, such as restart; more than once for more")
	f.StringArrayVar(&heals, "heal", nil, "`NAME=COMMAND` that mends what --fault NAME has done")
	return cmd
}

// parse takes over the commands for faults, and says what is wrong with the command line.
func (p *plan) parse(faults, heals []string, timed bool) error {
	p.faults = map[string]ownFault{}
	for i, s := range slices.Concat(faults, heals) {
		name, command, ok := strings.Cut(s, "=")
		own, has := p.faults[name]
		switch {
		case !ok || command == "":
			return fmt.Errorf("--fault and --heal %q: write NAME=COMMAND", s)
		case !slices.ContainsFunc(labFaults, func(f history.Fault) bool { return f.ID == name }):
			return fmt.Errorf("--fault and --heal: there is no %q: there is %s", name, strings.Join(ids(labFaults), ", "))
		case i < len(faults):
			own.inject = command
		case !has:
			return fmt.Errorf("--heal %s: there is no --fault %s", name, name)
		default:
			own.heal = command
		}
		p.faults[name] = own
	}
	for _, rule := range p.require {
		if all := check.Rules(); !slices.Contains(all, rule) {
			return fmt.Errorf("--require: there is no rule %q: there is %s", rule, strings.Join(all, ", "))
		}
	}
	for _, id := range p.only {
		if known := append(ids(allFaults()), healthy); !slices.Contains(known, id) {
			return fmt.Errorf("--only: there is no %q to try: there is %s", id, strings.Join(known, ", "))
		}
	}
	switch {
	case p.tries < 0:
		return fmt.Errorf("a --for of %v is not possible: give a positive duration, or 0s to try everything once", p.tries)
	case timed && (p.ttl < 10*time.Millisecond || p.ttl > time.Minute):
		return fmt.Errorf("a --ttl of %v is not possible: give one from 10ms to 1m", p.ttl)
	}
	return nil
}

// main compares, prints the table, and returns the exit status.
func (p *plan) main(out, errs io.Writer) int {
	say := func(text string) {
		text = strings.TrimPrefix(strings.TrimPrefix(text, "compare: "), "locker: open: ")
		fmt.Fprintln(errs, "locker:", strings.ReplaceAll(text, "\n", "; "))
	}
	ours := p.dir == ""
	if ours {
		var err error
		if p.dir, err = os.MkdirTemp("", "locker-compare-"); err != nil {
			say(err.Error())
			return ExitUnavailable
		}
	}
	p.live = errs
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // by nohup
		ends = append(ends, syscall.SIGHUP) // the terminal is gone: what was broken is still to be healed
	}
	ctx, cancel := signal.NotifyContext(context.Background(), ends...)
	defer cancel()
	context.AfterFunc(ctx, cancel) // a second Ctrl-C ends it at once
	r, failed := p.run(ctx)
	if ours && (r == nil || r.Trials == 0) {
		_ = os.RemoveAll(p.dir)
	}
	if r == nil {
		say(failed.Error())
		var file *fs.PathError
		if errors.As(failed, &file) && !errors.Is(failed, fs.ErrExist) {
			return ExitUnavailable
		}
		return ExitUsage
	}
	status, why := p.status(r)
	short := ExitHeld // what a report says that is not of the whole
	if err := errors.Join(failed, report.Table(out, r)); err != nil {
		say(err.Error())
		short = ExitUnavailable
	} else if r.Trials > 0 {
		fmt.Fprintf(out, "\nThe trials, as pictures: %s\n", filepath.Join(p.dir, history.PageFile))
	}
	if r.Interrupted != "" {
		say("the table has what was seen until the end: " + r.Interrupted)
		if short = ExitUnavailable; ctx.Err() != nil {
			short = ExitInterrupted
		}
	}
	for _, line := range why {
		say(line)
	}
	if status != ExitBroken && short != ExitHeld {
		return short
	}
	return status
}

// status is the exit status that a report has, with the reasons.
func (p *plan) status(r *history.Report) (int, []string) {
	var broken, untried []string
	tried := false
	for i, s := range r.Run.Services {
		tried = tried || s.Missing == ""
		if s.Missing != "" && len(p.urls) > 0 {
			untried = append(untried, s.Name+": "+s.Missing)
		}
		seen := map[string]bool{} // by rule: it was tried
		for _, row := range r.Rows {
			c, what := &row.Cells[i], "declared"
			seen[row.Rule] = seen[row.Rule] || c.Verdict == history.Held || c.Broken > 0
			if c.Verdict == history.Undeclared && slices.Contains(p.require, row.Rule) {
				what = "required"
			} else if c.Verdict != history.Broken {
				continue
			}
			broken = append(broken, fmt.Sprintf("%s: %s: %s, and BROKEN: %d of %d. The worst: %s (%s)",
				s.Name, row.Title, what, c.Broken, c.Trials, c.Worst, c.What))
		}
		for _, rule := range p.require {
			if !seen[rule] {
				untried = append(untried, fmt.Sprintf("%s: %s is required, and was not tried with any result", s.Name, rule))
			}
		}
	}
	switch {
	case !tried:
		return ExitUnavailable, []string{"no service could be tried"}
	case len(broken) > 0:
		return ExitBroken, append(broken, untried...)
	case len(untried) > 0:
		return ExitNotTried, untried
	}
	return ExitHeld, nil
}
