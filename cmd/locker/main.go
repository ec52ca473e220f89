// Command locker holds a lock while another command runs, and says who holds one.
//
//	locker run backup -- pg_dump -f /backup/db.sql
//	locker inspect backup
//	locker backends
//
// "locker help run" has the promises, the exit statuses and examples.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/golockers/locker/compare"
	"github.com/golockers/locker/internal/spelling"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
)

func main() { os.Exit(run(os.Args[1:])) }

// run does what args ask for and returns the exit status.
func run(args []string) int {
	if status, done := beGuard(args); done {
		return status
	}
	// Drivers log what the errors say anyway; stderr is for people.
	logging.Disable()
	compare.PlayHolder(openers)
	root := newRoot()
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	var e *exitError
	var compared compare.StatusError
	var unwritten *fs.PathError
	switch {
	case errors.As(err, &e):
	case errors.As(err, &compared):
		e = &exitError{status: int(compared)}
	case errors.As(err, &unwritten) && unwritten.Op == "write":
		e = &exitError{status: statusOutput, err: err}
	default:
		// The other errors are cobra's, about the command line.
		e = usage(fmt.Errorf("%w%s", err, suggestion(cmd, err)))
	}
	hint := ""
	if e.err != nil && strings.Contains(e.err.Error(), "URL: ") {
		hint = " (locker backends lists the URLs)"
	} else if e.status == statusUsage {
		hint = fmt.Sprintf(" (see %s --help)", cmd.CommandPath())
	}
	if e.err != nil {
		_, _ = os.Stderr.WriteString(line(e.err.Error() + hint))
	}
	if e.death.sig != nil {
		e.death.pass()
	}
	return e.status
}

// suggestion asks for the command or the flag that was meant.
func suggestion(cmd *cobra.Command, err error) string {
	var word string
	var known []string
	if _, failed := fmt.Sscanf(err.Error(), "unknown command %q", &word); failed == nil {
		for _, c := range cmd.Commands() {
			known = append(known, c.Name())
		}
	} else if _, failed := fmt.Sscanf(err.Error(), "unknown flag: %s", &word); failed == nil {
		known = regexp.MustCompile(`--[a-z-]+`).FindAllString(cmd.Flags().FlagUsages(), -1)
	}
	return spelling.Meant(word, known)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "locker",
		Short: "Run a command while holding a distributed lock",
		Long: strings.TrimSpace(`
Run a command while holding a lock, so that it never runs twice at once. By
default, the lock is between the processes of one user on this host: it needs no
server and no set-up.

For several hosts, name a lock service that they share, with --backend or in
LOCKER_BACKEND. For several users of one host, name a directory that they share:
file:///DIR.

More: https://github.com/golockers/locker/blob/main/docs/run.md`),
		Example: `  Run one backup at a time; the second waits for the first:
    locker run backup -- /usr/local/bin/backup.sh

  The same on all hosts that share a Redis:
    LOCKER_BACKEND=redis://redis.example:6379 locker run backup -- backup.sh

  Who holds which lock?
    locker list`,
		// A template of our own would link text/template, for which the linker keeps every method of every
		// type: a quarter of the binary. Cobra's own templates do without.
		Version:       versionText(),
		SilenceErrors: true, DisableSuggestions: true,
		SilenceUsage: true,
	}
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.AddCommand(newRun(), newInspect(), newList(), newBreak(), newCheck(), newBackends(),
		compare.Command(openers))
	return root
}

// release is the version of a released binary, which its build sets: in a workspace, the Go toolchain
// records none.
var release string

// versionText is the release's version, or what the Go toolchain has recorded, as for go install.
func versionText() string {
	version := release
	if info, ok := debug.ReadBuildInfo(); ok {
		version = cmp.Or(version, info.Main.Version)
	}
	return fmt.Sprintf("%s (%s %s/%s)", cmp.Or(version, "unknown"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
