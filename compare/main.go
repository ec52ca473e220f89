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

	"github.com/golockers/locker"
	"github.com/golockers/locker/bridge"
	"github.com/golockers/locker/compare/internal/check"
	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/compare/internal/report"
)

// Exit statuses of [Main].
const (
	ExitHeld        = 0   // all that is declared, or required, held
	ExitBroken      = 1   // something declared, or required, was broken
	ExitNotTried    = 2   // nothing was broken, and not everything required could be tried
	ExitUsage       = 64  // the command line, a URL or a file is wrong
	ExitUnavailable = 69  // no service could be reached or came back, or histories cannot be written or read
	ExitInterrupted = 130 // Ctrl-C, and nothing was broken by then
)

// Main is a whole command: it compares the services that openers open, as `locker compare` does, with the
// arguments of the process, and exits. The maker of a backend gets a table of it with
//
//	func main() { compare.Main(locker.Openers{"mine": mine.Open, "redis": single.Open}) }
func Main(openers locker.Openers) {
	PlayHolder(openers)
	os.Exit(execute(openers, os.Args[1:], os.Stdout, os.Stderr))
}

// execute is [Main] without the end of the process: it returns the exit status.
func execute(openers locker.Openers, args []string, out, errs io.Writer) int {
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
func Command(openers locker.Openers) *cobra.Command {
	o := &options{}
	var fault []string
	var faults string
	cmd := &cobra.Command{
		Use:   "compare [flags] [SERVICE | URL]...",
		Short: "Test what lock services guarantee, under real faults",
		Long: strings.TrimSpace(`
Compare what lock services guarantee, on real servers and under real faults.

It starts, on this machine and on loopback only, every service that is installed
(or those named), and breaks it in every way it can. With URLs it tries services
that exist already: only its own clients are cut off, delayed, stopped and
killed, it takes locks under a prefix of its own, and servers fail only where
--fault gives a command for it.

Exit status: 0 if all that is declared (or required) held; 1 if something
declared was broken; 2 if something required could not be tried; 64 if the
command line is wrong; 69 if no service could be reached, or a history cannot be
read or written; 130 after Ctrl-C.`),
		Example: strings.TrimPrefix(`
  Everything there is, in some minutes:
    locker compare

  These two, for longer:
    locker compare --for 20m redis etcd

  Services that exist already, and a fault that you can bring about:
    locker compare redis://staging:6379 etcd://a,b,c \
      --fault 'restart=kubectl rollout restart sts/redis --watch'

  A gate in a pipeline:
    locker compare --require exclusion,told,tokens redis://staging:6379

  The verdicts again, from the histories:
    locker compare --recheck DIR`, "\n"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.openers, o.urls = openers, args
			if err := o.parse(fault, faults, cmd.Flags().Changed("ttl")); err != nil {
				return err
			}
			if status := o.run(cmd.OutOrStdout(), cmd.ErrOrStderr()); status != ExitHeld {
				return StatusError(status)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.tries, "for", 3*time.Minute,
		"try for this `time`: everything once, and then again\nand again; 0s: everything once")
	f.DurationVar(&o.ttl, "ttl", 0, "the `TTL` of the locks (default: 1s in the lab,\n2s with URLs)")
	f.StringVar(&o.dir, "out", "",
		"`directory` for the report and the histories\n(default: a new temporary one)")
	f.StringSliceVar(&o.require, "require", nil,
		"`rules` that have to be tried and to hold for\nevery service, such as exclusion,told,tokens")
	f.StringSliceVar(&o.only, "only", nil, "try only these `faults`, or healthy, order")
	f.StringArrayVar(&fault, "fault", nil,
		"`NAME=COMMAND` that does something to the servers;\nmore than once for more")
	f.StringVar(&faults, "faults", "",
		"`file` of faults with commands to inject, to prove\nand to heal them (docs/compare.md)")
	f.StringVar(&o.rechecks, "recheck", "", "judge the histories in this `directory` again")
	return cmd
}

// options are what the command line says.
type options struct {
	plan
	rechecks string
	require  []string
}

// parse takes over the faults of the user's own, and says what is wrong with the command line.
func (o *options) parse(fault []string, faults string, timed bool) error {
	for _, s := range fault {
		name, command, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("--fault %q: write NAME=COMMAND", s)
		}
		o.faults = append(o.faults, ownFault{Name: name, Inject: command})
	}
	if faults != "" {
		more, err := readFaults(faults)
		if err != nil {
			return err
		}
		o.faults = append(o.faults, more...)
	}
	for _, rule := range o.require {
		if all := check.Rules(); !slices.Contains(all, rule) {
			return fmt.Errorf("--require: there is no rule %q: there is %s", rule, strings.Join(all, ", "))
		}
	}
	if o.tries < 0 || timed && (o.ttl < 10*time.Millisecond || o.ttl > time.Minute) {
		return errors.New("--for is not negative, and --ttl is from 10ms to 1m")
	}
	if o.rechecks != "" && len(o.urls) > 0 {
		return errors.New("--recheck asks no service: write no URL")
	}
	return nil
}

// run compares, or judges again, and returns the exit status.
func (o *options) run(out, errs io.Writer) int {
	if o.rechecks != "" {
		report, err := recheck(o.rechecks)
		return o.finish(report, err, o.rechecks, false, out, errs)
	}
	ours := o.dir == ""
	if ours {
		var err error
		if o.dir, err = os.MkdirTemp("", "locker-compare-"); err != nil {
			return o.finish(nil, err, "", false, out, errs)
		}
	}
	o.live, o.command = errs, asked()
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // by nohup
		ends = append(ends, syscall.SIGHUP) // the terminal is gone: what was broken is still to be healed
	}
	ctx, cancel := signal.NotifyContext(context.Background(), ends...)
	defer cancel()
	context.AfterFunc(ctx, cancel) // a second Ctrl-C ends it at once
	report, err := o.plan.run(ctx)
	status := o.finish(report, err, o.dir, ctx.Err() != nil, out, errs)
	if ours && (report == nil || report.Trials == 0) {
		_ = os.RemoveAll(o.dir)
	}
	return status
}

// asked is the command line, without passwords.
func asked() string {
	shown := []string{"locker compare"}
	for _, arg := range os.Args[1+max(0, slices.Index(os.Args, "compare")):] {
		if urls, err := bridge.ParseURLs(arg); err == nil {
			arg = urls.String()
		}
		shown = append(shown, arg)
	}
	return strings.Join(shown, " ")
}

// finish prints the table, and returns the exit status. failed is what kept the report from being read
// or written as a whole, or, without a report, the run from beginning.
func (o *options) finish(r *history.Report, failed error, dir string, signalled bool, out, errs io.Writer) int {
	say := func(text string) {
		text = strings.TrimPrefix(strings.TrimPrefix(text, "compare: "), "locker: open: ")
		fmt.Fprintln(errs, "locker:", strings.ReplaceAll(text, "\n", "; "))
	}
	if r == nil {
		say(failed.Error())
		var file *fs.PathError
		if o.rechecks == "" && errors.As(failed, &file) && !errors.Is(failed, fs.ErrExist) {
			return ExitUnavailable
		}
		return ExitUsage
	}
	status, why := o.status(r)
	short := ExitHeld // what a report says that is not of the whole
	if err := errors.Join(failed, report.Table(out, r)); err != nil {
		say(err.Error())
		short = ExitUnavailable
	}
	page := filepath.Join(dir, history.PageFile)
	if _, err := os.Stat(page); err == nil && r.Trials > 0 {
		fmt.Fprintf(out, "\nThe trials, as pictures: %s\n", page)
	}
	if r.Interrupted != "" {
		say("the table has what was seen until the end: " + r.Interrupted)
		if short = ExitUnavailable; signalled {
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
func (o *options) status(r *history.Report) (int, []string) {
	var broken, untried []string
	tried := false
	for i, s := range r.Run.Services {
		tried = tried || s.Missing == ""
		if s.Missing != "" && len(o.urls) > 0 {
			untried = append(untried, s.Name+": "+s.Missing)
		}
		seen := map[string]bool{} // by rule: it was tried
		for _, row := range r.Rows {
			c, what := &row.Cells[i], "declared"
			seen[row.Rule] = seen[row.Rule] || c.Verdict == history.Held || c.Broken > 0
			if c.Verdict == history.Undeclared && slices.Contains(o.require, row.Rule) {
				what = "required"
			} else if c.Verdict != history.Broken {
				continue
			}
			broken = append(broken, fmt.Sprintf("%s: %s: %s, and BROKEN: %s", s.Name, row.Title, what, c.Worst))
		}
		for _, rule := range o.require {
			if !seen[rule] {
				untried = append(untried, fmt.Sprintf("%s: %s is required, and was not tried", s.Name, rule))
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
