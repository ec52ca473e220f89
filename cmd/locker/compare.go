package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/golockers/locker/compare"
)

func newCompare() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compare [flags] [SERVICE | URL ...]",
		Short: "Test what lock services guarantee, under real faults",
		Long:  "locker compare --help prints what compare.Main does for every backend.",
		Example: examples(
			"What does each lock service guarantee on this machine?",
			"locker compare",
			"",
			"And those in staging?",
			"locker compare redis://staging:6379 etcd://a,b,c",
		),
		// compare.Main, which authors of other backends call, has its own flags and help.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			status := compare.Execute(openers, args, cmd.OutOrStdout(), os.Stderr)
			if status == 0 {
				return nil
			}
			return &exitError{status: status}
		},
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		compare.Execute(openers, []string{"--help"}, cmd.OutOrStdout(), os.Stderr)
	})
	return cmd
}
