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
	"github.com/golockers/locker/internal/oneline"
	"github.com/golockers/locker/internal/probe"
	"github.com/spf13/cobra"
)

func newCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [flags] [URL]",
		Short: "Check whether a lock service is set up to keep its promises",
		Long: strings.TrimSpace(`
Check whether a lock service is set up to keep the promises that "locker
backends" shows: lock, renew and unlock a name made up for the check, and look
for server settings that break a promise. Each finding says what to change. The
check changes no setting, and leaves nothing behind (except, on Kubernetes, a
Lease that later checks use).

Exit status: 0 if all is well; 1 if a fault may break a promise (a warning); 2
if a promise does not hold, or no lock can be had (a problem).

With --json, each line is one object: "severity" (ok, info, warning, problem),
"what", "found", "advice".`),
		Example: `  Before the first deployment:
    locker check redis://redis.example:6379

  The lock service of this environment (LOCKER_BACKEND):
    locker check

  In a pipeline:
    locker check --json | jq 'select(.severity != "ok")'`,
		Args: takes(0, 1),
	}
	q := newQuestion(cmd, 2*openTimeout) // it does several things
	asJSON := cmd.Flags().Bool("json", false, "write JSON, one object per line")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, url := range args {
			if err := q.backend.Set(url); err != nil {
				return usage(fmt.Errorf("the URL: %w", err))
			}
		}
		var findings []locker.Finding
		began, opened := time.Now(), false
		err := q.ask(cmd.Context(), func(ctx context.Context, client *locker.Client) (err error) {
			opened = true
			findings, err = check(ctx, client, began)
			return err
		})
		if errors.Is(err, locker.ErrRefused) && !opened {
			findings, err = []locker.Finding{{Severity: locker.SeverityProblem, What: "opening", Found: plain(err),
				Advice: "no lock can be had: fix this"}}, nil
		}
		if err != nil {
			return err
		}
		worst := locker.SeverityOK
		for _, f := range findings {
			worst = max(worst, f.Severity)
		}
		if err := writeFindings(cmd.OutOrStdout(), findings, *asJSON); err != nil {
			return err
		}
		return &exitError{status: max(0, int(worst-locker.SeverityInfo))}
	}
	return cmd
}

// check locks a name in the service, which was opened since then, and asks the client for its findings.
func check(ctx context.Context, client *locker.Client, began time.Time) ([]locker.Finding, error) {
	opened := locker.Finding{What: "opening " + client.Guarantees().Backend, Found: "took " + round(time.Since(began)).String()}
	probed, locked := try(ctx, client)
	more, err := client.Check(ctx)
	findings := append([]locker.Finding{opened, probed}, more...)
	switch {
	case err == nil || errors.Is(err, errors.ErrUnsupported): // this backend may have nothing to look for
		return findings, nil
	case locked == nil || errors.Is(locked, locker.ErrUnavailable):
		return nil, cmp.Or(locked, err)
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
		lease, err = client.TryLock(ctx, "locker-check-"+name)
	}
	if err == nil {
		err = oneline.Join(lease.Renew(ctx), lease.Unlock(ctx))
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
			_ = json.NewEncoder(&out).Encode(map[string]string{"severity": f.Severity.String(), "what": f.What,
				"found": f.Found, "advice": f.Advice})
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
