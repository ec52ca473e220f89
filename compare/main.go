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
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/oneline"
)

// Exit statuses of [Main].
const (
	ExitHeld        = 0   // everything promised or required held
	ExitBroken      = 1   // something promised or required was broken
	ExitNotTried    = 2   // nothing was broken, but something required could not be tried or is inconclusive
	ExitUsage       = 64  // the command line or a URL is wrong
	ExitUnavailable = 69  // no service could be reached, one did not come back, or the history cannot be written
	ExitInterrupted = 130 // Ctrl-C, with nothing broken until then
)

// Main is a complete command: it compares the services that openers open, as `locker compare` does,
// with the arguments of the process, and exits. The author of a backend gets a table with
//
//	func main() { compare.Main(driver.Openers{"mine": mine.Open, "redis": single.Open}) }
func Main(openers driver.Openers) {
	PlayHolder(openers)
	os.Exit(execute(openers, os.Args[1:], os.Stdout, os.Stderr))
}

// execute is [Main], but returns the exit status.
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

// StatusError is the error of a [Command] that ended with this exit status and has already reported
// why.
type StatusError int

func (s StatusError) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Command is `locker compare` for the services that openers open, as part of another command. Its
// errors other than [StatusError] are about the command line. The program must call [PlayHolder] first.
func Command(openers driver.Openers) *cobra.Command {
	p := &plan{openers: openers, shell: shell}
	var faults, heals []string
	cmd := &cobra.Command{
		Use:   "compare [flags] [SERVICE | URL]...",
		Short: "Test what lock services guarantee, under real faults",
		Long: strings.TrimSpace(`
Compare what lock services guarantee, on real servers and under real faults.

It starts every service installed on this machine (or those named), on loopback
only, and breaks it in every way it can. With URLs it tries existing services,
under a prefix of its own: it cuts off, stops and kills only its own clients,
and servers fail only if --fault gives a command for it.

Exit status: 0 if all promises and required rules held; 1 if one was broken; 2
if a required rule could not be tried or has a cell with "?"; 64 if the command
line is wrong; 69 if no service could be reached, one did not come back, or the
history cannot be written; 130 after Ctrl-C.

Rules for --require:
` + ruleLines()),
		Example: strings.TrimPrefix(`
  Every service on this machine, in a few minutes:
    locker compare

  Two of them, for longer:
    locker compare --for 20m redis etcd

  Servers of your own, with a command that breaks them:
    locker compare redis://staging:6379 etcd://a,b,c \
      --fault 'restart=kubectl rollout restart sts/redis &&
               kubectl rollout status sts/redis'

  In a pipeline, which fails if a rule does not hold:
    locker compare --require exclusion,told,fencing redis://staging:6379`, "\n"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.urls = args
			p.version, _, _ = strings.Cut(cmd.Root().Version, " ")
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
	p.tries = 3 * time.Minute
	f.Var((*clock.Flag)(&p.tries), "for", "try everything once, then again until this\nmuch time has passed; 0s: once")
	f.DurationVar(&p.ttl, "ttl", 0, "the `TTL` of the locks (default: 1s in the lab,\n2s with URLs, longer on a busy machine)")
	f.StringVar(&p.dir, "out", "", "`directory` for the report and the history\n(default: a new temporary one)")
	f.StringSliceVar(&p.require, "require", nil,
		"`rules` that must be tried and hold for every\nservice, such as exclusion,fencing")
	f.StringSliceVar(&p.only, "only", nil, "try only these `faults`, or healthy")
	f.StringArrayVar(&faults, "fault", nil,
		"`NAME=COMMAND` that causes a server fault, such as\nrestart; repeat it for more faults")
	f.StringArrayVar(&heals, "heal", nil, "`NAME=COMMAND` that undoes --fault NAME")
	return cmd
}

// ruleLines are the rules and their meanings, for the help text.
func ruleLines() string {
	var lines strings.Builder
	for _, rule := range check.Rules() {
		fmt.Fprintf(&lines, "  %-10s %s\n", rule.Name, rule.Means)
	}
	return lines.String()
}

// parse reads the commands for faults, and reports what is wrong with the command line.
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
		var all []string
		for _, known := range check.Rules() {
			all = append(all, known.Name)
		}
		if !slices.Contains(all, rule) {
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
	p.live, p.inPlace = errs, isTerminal(errs)
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // by nohup
		ends = append(ends, syscall.SIGHUP) // the terminal is gone, but faults must still be healed
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
	short := ExitHeld // the status of an incomplete report
	if err := oneline.Join(failed, report.Table(out, r)); err != nil {
		say(err.Error())
		short = ExitUnavailable
	} else if r.Trials > 0 {
		fmt.Fprintf(out, "\nThe trials, as pictures: %s\n", filepath.Join(p.dir, history.PageFile))
	}
	if r.Interrupted != "" {
		say("the table shows what was seen before the run ended: " + r.Interrupted)
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

// status is the exit status for a report, with the reasons.
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
			c, what := &row.Cells[i], "promised"
			seen[row.Rule] = seen[row.Rule] || c.Verdict == history.Held || c.Broken > 0
			if c.Verdict == history.Inconclusive && slices.Contains(p.require, row.Rule) {
				untried = append(untried, fmt.Sprintf("%s: %s is required, but inconclusive (?): %s", s.Name, row.Title,
					c.Reason))
				seen[row.Rule] = true
			}
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
				untried = append(untried, fmt.Sprintf("%s: %s is required, but was not tried with any result", s.Name, rule))
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
