package main

import (
	"cmp"
	"context"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/file"
	"github.com/golockers/locker/redlock"
	"github.com/golockers/locker/single"
	"github.com/golockers/locker/zookeeper"
	"github.com/spf13/cobra"
)

// openers are the lock services of this command, by URL scheme. memory is not
// among them: a lock that no other process sees would protect nothing here.
var openers = locker.Openers{
	"file":            file.Open,
	"redis":           single.Open,
	"rediss":          single.Open,
	"unix":            single.Open,
	"redis+cluster":   single.Open,
	"rediss+cluster":  single.Open,
	"redis+sentinel":  single.Open,
	"rediss+sentinel": single.Open,
	"redlock":         redlock.Open,
	"redlocks":        redlock.Open,
	"etcd":            etcd.Open,
	"etcds":           etcd.Open,
	"zookeeper":       zookeeper.Open,
	"zookeepers":      zookeeper.Open,
}

// backendEnv names the environment variable with the default of --backend.
const backendEnv = "LOCKER_BACKEND"

// openTimeout bounds how long a lock service may take to answer for the first
// time, and to answer what is not a wait.
const openTimeout = 10 * time.Second

// addBackendFlag adds --backend to cmd.
func addBackendFlag(cmd *cobra.Command, address *string) {
	cmd.Flags().StringVarP(address, "backend", "b", "",
		"`URL` of the lock service (default: $"+backendEnv+", or else files in ~/.local/state/locker)")
	_ = cmd.RegisterFlagCompletionFunc("backend", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var urls []string
		for _, scheme := range slices.Sorted(maps.Keys(openers)) {
			urls = append(urls, scheme+"://")
		}
		return urls, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	})
}

// open connects to the lock service that the flag, the environment or the
// default names. Its error has the exit status.
func open(ctx context.Context, address string, opts *locker.Options) (*locker.Client, error) {
	address = cmp.Or(strings.TrimSpace(address), strings.TrimSpace(os.Getenv(backendEnv)))
	if address == "" {
		dir, err := file.DefaultDir()
		if err != nil {
			return nil, &exitError{statusUnavailable, err}
		}
		address = (&url.URL{Scheme: "file", Path: dir}).String()
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	client, err := openers.Open(ctx, address, opts)
	if err != nil {
		return nil, failure(err)
	}
	return client, nil
}
