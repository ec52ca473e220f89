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
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/golockers/locker/compare"
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
		e = usage(err)
	}
	switch {
	case e.err == nil:
	case e.status == statusUsage && strings.Contains(e.err.Error(), "backend URL: "):
		say(os.Stderr, fmt.Errorf("%w (locker backends lists the URLs)", e.err))
	case e.status == statusUsage:
		say(os.Stderr, fmt.Errorf("%w (see %s --help)", e.err, cmd.CommandPath()))
	default:
		say(os.Stderr, e.err)
	}
	if e.death.sig != nil {
		e.death.pass()
	}
	return e.status
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "locker",
		Short: "Run a command while holding a distributed lock",
		Long: strings.TrimSpace(`
Run a command while holding a lock. By default, the lock is between the
processes of one user on one machine: it needs no server and no set-up.

For several machines, --backend or LOCKER_BACKEND names a lock service that they
share. For several users of one machine, file:///DIR names a shared directory.

Exit statuses, and much more:
https://github.com/golockers/locker/blob/main/docs/run.md`),
		Example: `  Never run two backups at once; the second waits for the first:
    locker run backup -- /usr/local/bin/backup.sh

  The same, on all machines that share a Redis:
    LOCKER_BACKEND=redis://redis.example:6379 locker run backup -- backup.sh

  Who holds the lock?
    locker inspect backup`,
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

// versionText is what the Go toolchain has recorded at the build.
func versionText() string {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = cmp.Or(info.Main.Version, version)
	}
	return fmt.Sprintf("%s (%s %s/%s)", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
