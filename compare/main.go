package compare

import (
	"context"
	"errors"
	"flag"
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

	"github.com/golockers/locker"
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
	ExitUnavailable = 69  // no service could be reached, one did not come back, or histories cannot be written or read
	ExitInterrupted = 130 // Ctrl-C, and nothing was broken by then
)

// Main is a whole command: it compares the services that openers open, as `locker compare` does, with the
// arguments of the process, and exits. The maker of a backend gets a table of it with
//
//	func main() { compare.Main(locker.Openers{"mine": mine.Open, "redis": single.Open}) }
func Main(openers locker.Openers) {
	PlayHolder(openers)
	os.Exit(Execute(openers, os.Args[1:], os.Stdout, os.Stderr))
}

const help = `Compare what lock services guarantee, on real servers and under real faults.

Usage:
  %[1]s [flags] [SERVICE | URL ...]

It starts, on this machine and on loopback only, every service that is installed
(or those named), and breaks it in every way it can. With URLs it tries services
that exist already: only its own clients are cut off, delayed, stopped and
killed, it takes locks under a prefix of its own, and servers fail only where
--fault gives a command for it.

Examples:
  Everything there is, in two minutes:
    %[1]s

  These two, again and again:
    %[1]s --for 20m redis etcd

  Services that exist already, and a fault that you can bring about:
    %[1]s --fault 'restart=kubectl rollout restart sts/redis --watch' \
      redis://staging:6379 etcd://a,b,c

  A gate in a pipeline:
    %[1]s --require exclusion,told,tokens redis://staging:6379

  The verdicts again, from the histories:
    %[1]s --recheck DIR

Flags:
`

const helpEnd = `
Exit status: 0, all that is declared (or required) held; 1, something declared
was broken; 2, something required could not be tried; 64, the command line is
wrong; 69, no service could be reached, or a history cannot be read or written;
130, Ctrl-C.
`

// Execute is [Main] without the end of the process: it returns the exit status.
func Execute(openers locker.Openers, args []string, out, errs io.Writer) int {
	fail := func(status int, err error) int {
		text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "compare: "), "locker: open: ")
		fmt.Fprintln(errs, "locker:", strings.ReplaceAll(text, "\n", "; "))
		return status
	}
	o, err := parse(args, out)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return ExitHeld
	case err != nil:
		return fail(ExitUsage, fmt.Errorf("%w (see locker compare --help)", err))
	}
	if o.recheck != "" {
		report, err := Recheck(o.recheck)
		if report == nil {
			return fail(ExitUsage, err)
		}
		return o.finish(report, err, o.recheck, out, errs)
	}
	ours := o.plan.Dir == ""
	if ours {
		if o.plan.Dir, err = os.MkdirTemp("", "locker-compare-"); err != nil {
			return fail(ExitUnavailable, err)
		}
	}
	o.plan.Openers, o.plan.Live = openers, errs
	o.plan.Command = "locker compare " + strings.Join(masked(args), " ")
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // by nohup
		ends = append(ends, syscall.SIGHUP) // the terminal is gone: what was broken is still to be healed
	}
	ctx, cancel := signal.NotifyContext(context.Background(), ends...)
	defer cancel()
	context.AfterFunc(ctx, cancel) // a second Ctrl-C ends it at once
	report, err := Run(ctx, o.plan)
	if report == nil {
		_ = os.Remove(o.plan.Dir) // if there is nothing in it
		var file *fs.PathError
		if errors.As(err, &file) && !errors.Is(err, fs.ErrExist) {
			return fail(ExitUnavailable, err)
		}
		return fail(ExitUsage, err)
	}
	o.signalled = ctx.Err() != nil
	status := o.finish(report, err, o.plan.Dir, out, errs)
	if ours && report.Trials == 0 {
		_ = os.RemoveAll(o.plan.Dir)
	}
	return status
}

// options are what the command line says.
type options struct {
	plan    Plan
	recheck string
	require []string

	signalled bool // by Ctrl-C
}

func parse(args []string, out io.Writer) (*options, error) {
	o := &options{}
	var require, only, faults string
	fs := flag.NewFlagSet("locker compare", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.DurationVar(&o.plan.For, "for", 0, "try for this `time`, such as 20m (default: everything once)")
	fs.DurationVar(&o.plan.TTL, "ttl", 0, "the `TTL` of the locks (default: 1s in the lab, 2s with URLs)")
	fs.StringVar(&o.plan.Dir, "out", "", "`directory` for the report and the histories (default: a new one in "+os.TempDir()+")")
	fs.StringVar(&require, "require", "", "`rules` that have to be tried and to hold for every service,\nsuch as exclusion,told,tokens")
	fs.StringVar(&only, "only", "", "try only these `faults`, by their names in report.json,\nor healthy, order, cost")
	fs.Func("fault", "`NAME=COMMAND` that does something to the servers; more than once for more", func(s string) error {
		name, command, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("write NAME=COMMAND")
		}
		o.plan.Faults = append(o.plan.Faults, Fault{Name: name, Inject: command})
		return nil
	})
	fs.StringVar(&faults, "faults", "", "`file` of faults with commands to inject, to prove and to heal them\n(docs/compare.md)")
	fs.StringVar(&o.recheck, "recheck", "", "judge the histories in this `directory` again")
	for {
		if err := fs.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				fmt.Fprintf(out, help, "locker compare")
				fs.SetOutput(out)
				fs.PrintDefaults()
				fmt.Fprint(out, helpEnd)
			}
			return nil, err
		}
		if fs.NArg() == 0 {
			break
		}
		o.plan.URLs = append(o.plan.URLs, fs.Arg(0))
		args = fs.Args()[1:]
	}
	o.require, o.plan.Only = list(require), list(only)
	if faults != "" {
		more, err := ReadFaults(faults)
		if err != nil {
			return nil, err
		}
		o.plan.Faults = append(o.plan.Faults, more...)
	}
	for _, rule := range o.require {
		if all := check.Rules(); !slices.Contains(all, rule) {
			return nil, fmt.Errorf("--require: there is no rule %q: there is %s", rule, strings.Join(all, ", "))
		}
	}
	if ttl := o.plan.TTL; o.plan.For < 0 || ttl != 0 && (ttl < 10*time.Millisecond || ttl > time.Minute) {
		return nil, errors.New("--for is not negative, and --ttl is from 10ms to 1m")
	}
	if o.recheck != "" && len(o.plan.URLs) > 0 {
		return nil, errors.New("--recheck asks no service: write no URL")
	}
	return o, nil
}

func list(s string) []string {
	var all []string
	for word := range strings.SplitSeq(s, ",") {
		if word = strings.TrimSpace(word); word != "" {
			all = append(all, word)
		}
	}
	return all
}

// masked is a command line without passwords.
func masked(args []string) []string {
	shown := make([]string, len(args))
	for i, arg := range args {
		shown[i] = arg
		if u, err := locker.ParseURL(arg); err == nil {
			shown[i] = u.String()
		}
	}
	return shown
}

// finish prints the report, and returns the exit status. failed is what kept it from being read or written as a whole.
func (o *options) finish(report *history.Report, failed error, dir string, out, errs io.Writer) int {
	status, why := o.status(report)
	if err := errors.Join(failed, show(report, dir, out)); err != nil {
		fmt.Fprintln(errs, "locker:", strings.ReplaceAll(err.Error(), "\n", "; "))
		if status != ExitBroken {
			status = ExitUnavailable
		}
	}
	if report.Interrupted != "" {
		fmt.Fprintln(errs, "locker: the table has what was seen until the end:", report.Interrupted)
		switch {
		case status == ExitBroken:
		case o.signalled:
			status = ExitInterrupted
		default:
			status = ExitUnavailable
		}
	}
	for _, line := range why {
		fmt.Fprintln(errs, "locker:", line)
	}
	return status
}

// show prints the table, and where the page is.
func show(r *history.Report, dir string, out io.Writer) error {
	width := 0
	if f, ok := out.(*os.File); ok {
		width = report.Width(f)
	}
	if err := report.Table(out, r, width, width > 0); err != nil {
		return err
	}
	page := filepath.Join(dir, history.PageFile)
	_, err := os.Stat(page)
	if err == nil && r.Trials > 0 {
		fmt.Fprintf(out, "\nThe trials, as pictures: %s\n", page)
	}
	return nil
}

// status is the exit status that a report has, with the reasons.
func (o *options) status(report *history.Report) (int, []string) {
	var broken, untried []string
	tried := false
	for _, s := range report.Run.Services {
		tried = tried || s.Missing == ""
	}
	if !tried {
		return ExitUnavailable, []string{"no service could be tried"}
	}
	for _, row := range report.Rows {
		for _, c := range row.Cells {
			if c.Bad() {
				broken = append(broken, fmt.Sprintf("%s: %s: declared, and BROKEN: %s", c.Service, row.Title, c.Worst))
			}
		}
	}
	for _, s := range report.Run.Services {
		if s.Missing != "" && len(o.plan.URLs) > 0 {
			untried = append(untried, s.Name+": "+s.Missing)
		}
	}
	for _, rule := range o.require {
		for _, s := range report.Run.Services {
			held, bad := 0, ""
			for _, row := range report.Rows {
				for _, c := range row.Cells {
					if row.Rule != rule || c.Service != s.Name {
						continue
					}
					switch {
					case c.Verdict == history.Held:
						held++
					case c.Verdict == history.Broken && !c.Bad():
						bad = fmt.Sprintf("%s: %s: required, and BROKEN: %s", c.Service, row.Title, c.Worst)
					}
				}
			}
			if bad != "" {
				broken = append(broken, bad)
			} else if held == 0 {
				untried = append(untried, fmt.Sprintf("%s: %s is required, and was not tried", s.Name, rule))
			}
		}
	}
	switch {
	case len(broken) > 0:
		return ExitBroken, append(broken, untried...)
	case len(untried) > 0:
		return ExitNotTried, untried
	}
	return ExitHeld, nil
}
