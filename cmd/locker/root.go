package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/golockers/locker/compare"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
)

// run does what args ask for and returns the exit status.
func run(args []string) int {
	if status, done := beGuard(args); done {
		return status
	}
	compare.PlayHolder(openers)
	// What the driver has to say is in the errors; stderr is for people.
	logging.Disable()
	root := newRoot()
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	var e *exitError
	var unwritten *fs.PathError
	switch {
	case errors.As(err, &e):
	case errors.As(err, &unwritten):
		e = &exitError{status: statusOutput, err: err}
	default:
		// What cobra finds wrong, it finds wrong with the command line.
		e = usage(err)
	}
	switch {
	case e.err == nil:
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
Run a command while holding a lock: by default one between the processes of one
user on one machine, with no server and nothing to set up.

--backend, or LOCKER_BACKEND, names a lock service that several machines share,
or with file:///DIR a directory that several users of one machine share.`),
		Example: examples(
			"Never two backups at once; the second waits for the first:",
			"locker run backup -- /usr/local/bin/backup.sh",
			"",
			"The same, for all machines that share a Redis:",
			"LOCKER_BACKEND=redis://redis.example:6379 locker run backup -- backup.sh",
			"",
			"Who has it?",
			"locker inspect backup",
		),
		// No template of ours: cobra's own come without text/template, by which the linker would have to keep
		// every method of every type. That is a quarter of the binary.
		Version:       versionText(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newRun(), newInspect(), newList(), newWait(), newBreak(), newCheck(), newCompare(), newBackends(), newVersion())
	return root
}

// examples indents lines as the help shows them: what a line says stands
// above what to type.
func examples(lines ...string) string {
	var b strings.Builder
	for i, line := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		if line == "" {
			continue
		}
		b.WriteString("  ")
		if !strings.HasSuffix(line, ":") && !strings.HasSuffix(line, "?") {
			b.WriteString("  ")
		}
		b.WriteString(line)
	}
	return b.String()
}
