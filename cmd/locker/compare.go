package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/golockers/locker"
	"github.com/golockers/locker/compare"
)

// newCompare is the command that authors of other backends have, too.
func newCompare() *cobra.Command {
	cmd := compare.Command(locker.Openers(openers))
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var status compare.StatusError
		err := run(cmd, args)
		if errors.As(err, &status) {
			return &exitError{status: int(status)}
		}
		return err
	}
	return cmd
}
