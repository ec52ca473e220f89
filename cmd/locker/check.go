package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/probe"
	"github.com/spf13/cobra"
)

// statuses are the exit statuses of locker check that are not 0.
var statuses = map[driver.Severity]int{locker.SeverityWarning: 1, locker.SeverityProblem: 2}

func newCheck() *cobra.Command {
	var backend backendFlag
	var asJSON bool
	timeout := limit(2 * openTimeout) // it does several things
	cmd := &cobra.Command{
		Use:   "check [flags] [URL]",
		Short: "Check whether a lock service keeps what is declared for it",
		Long: strings.TrimSpace(`
Check whether a lock service keeps what "locker backends" declares for it: lock,
renew and unlock a name of its own, and look for server settings that break a
guarantee. Each finding says what to change. No setting is changed, and nothing
of that name is left behind, but on Kubernetes a Lease that later checks use.
Given two URLs, it only locks on both, which shows whether they are two
services: check each of them, too.

Exit status: 0 if all is well; 1 if something may fail under some fault (a
warning); 2 if a guarantee does not hold or no lock can be had (a problem).

With --json, each line is one object: "severity" (ok, info, warning, problem),
"what", "found", "advice".`),
		Example: `  Before the first deployment:
    locker check redis://redis.example:6379

  In a pipeline, with the URL in LOCKER_BACKEND:
    locker check --json | jq 'select(.severity != "ok")'`,
		Args: takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, url := range args {
				if err := backend.Set(url); err != nil {
					return usage(fmt.Errorf("the URL: %w", err))
				}
			}
			ctx, cancel := timeout.bound(cmd.Context())
			defer cancel()
			findings, err := check(ctx, &backend)
			if err != nil {
				return err
			}
			worst := locker.SeverityOK
			for _, f := range findings {
				worst = max(worst, f.Severity)
			}
			if err := writeFindings(cmd.OutOrStdout(), findings, asJSON); err != nil {
				return err
			}
			if status := statuses[worst]; status != 0 {
				return &exitError{status: status}
			}
			return nil
		},
	}
	addBackendFlag(cmd, &backend)
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, &timeout)
	return cmd
}

// check opens the service, locks a name in it, and asks the client for its findings.
func check(ctx context.Context, backend *backendFlag) ([]locker.Finding, error) {
	began := time.Now()
	client, err := open(ctx, backend, nil)
	switch {
	case errors.Is(err, locker.ErrRefused):
		return []locker.Finding{{Severity: locker.SeverityProblem, What: "opening", Found: plain(err),
			Advice: "no lock can be had: fix this"}}, nil
	case err != nil:
		return nil, err
	}
	defer client.Close()
	findings := []locker.Finding{{
		What: "opening " + client.Guarantees().Backend, Found: "took " + round(time.Since(began)).String(),
	}}
	probed, locked := try(ctx, client)
	more, err := client.Check(ctx)
	findings = append(append(findings, probed), more...)
	switch {
	case err == nil || errors.Is(err, errors.ErrUnsupported): // this backend may have nothing to look for
		return findings, nil
	case locked == nil || errors.Is(locked, locker.ErrUnavailable):
		return nil, unanswered(ctx, cmp.Or(locked, err))
	}
	return findings, nil // no lock can be had, and that is said
}

// try locks, renews and unlocks a name that nobody else asks for, and removes what the
// service keeps of it. Its error says that it could not.
func try(ctx context.Context, client *locker.Client) (locker.Finding, error) {
	f := locker.Finding{What: "lock, renew and unlock"}
	began := time.Now()
	var lease *locker.Lease
	err := locker.ErrHeld
	for try := 0; try < 5 && errors.Is(err, locker.ErrHeld); try++ { // by another check, which may have been killed
		name := rand.Text()
		if watchedByOne(client) { // its records stay
			name = name[:1]
		}
		lease, err = client.TryLock(ctx, "locker-check-"+name, locker.Patience(locker.NoPatience))
	}
	if err == nil {
		err = errors.Join(lease.Renew(ctx), lease.Unlock(ctx))
		var remains probe.Remains
		if err == nil && lease.As(&remains) {
			_ = remains(ctx) // without the right to, it stays as of any name
		}
	}
	f.Found = "took " + round(time.Since(began)).String()
	if err != nil {
		f.Severity, f.Found = locker.SeverityProblem, plain(err)
		f.Advice = "no lock can be had: fix this, or what is found below"
	}
	return f, err
}

func writeFindings(w io.Writer, findings []locker.Finding, asJSON bool) error {
	var out bytes.Buffer
	for _, f := range findings {
		if asJSON {
			_ = json.NewEncoder(&out).Encode(map[string]string{
				"severity": f.Severity.String(), "what": f.What, "found": f.Found, "advice": f.Advice,
			})
			continue
		}
		fmt.Fprintf(&out, "%-8s %s: %s\n", f.Severity, f.What, f.Found)
		if f.Advice != "" {
			fmt.Fprintf(&out, "%-8s %s\n", "", f.Advice)
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

// watchedByOne reports whether a client has to watch a dead holder's lock itself for as long as that lasts, as with
// package cas. With etcd's StrictExpiry it is enough that anybody has asked.
func watchedByOne(c *locker.Client) bool {
	g := c.Guarantees()
	return g.DeadHolder == locker.RecoveryWatched && g.Order == locker.OrderNone
}
