package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/cas/kubernetes"
	"github.com/golockers/locker/cas/sqlstore"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/file"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/memory"
	"github.com/golockers/locker/postgres"
	"github.com/golockers/locker/redlock"
	"github.com/golockers/locker/single"
	"github.com/golockers/locker/zookeeper"
	"github.com/spf13/cobra"
)

// promise is what a backend declares, and the URLs that open it.
type promise struct {
	urls string
	locker.Guarantees
}

// promises returns what every backend declares, the backend with the shortest
// reach first. A backend of several servers declares it for a usual number of them.
func promises() []promise {
	return []promise{
		{"memory:// (programs only)", memory.New().Guarantees()},
		{"file:///directory", new(file.Backend).Guarantees()},
		{"redis://, rediss://, unix://, redis+sentinel://, rediss+sentinel://, redis+cluster://, " +
			"rediss+cluster://", single.Guarantees()},
		{"redlock://, redlocks://, here with 5 servers", redlock.Guarantees(5, nil)},
		{"postgres://, postgresql://, here without failover_safe=on", postgres.Guarantees(nil)},
		{"etcd://, etcds://, here with members=3", etcd.Guarantees(&etcd.Options{Members: 3})},
		{"zookeeper://, zookeepers://, here with 3 servers", zookeeper.Guarantees(3, nil)},
		{"kubernetes://", kubernetes.Guarantees()},
		{"mysql://, mysqls://", sqlstore.MySQL().Promises.Guarantees()},
	}
}

func newBackends() *cobra.Command {
	return &cobra.Command{
		Use:   "backends",
		Short: "Show what each lock service guarantees",
		Long: strings.TrimSpace(`
Show what each lock service guarantees, as a Markdown table. The guarantees are
built in: no server is asked. None of them outlasts a lease: a holder that was
paused can still act after its lease has ended. Only a resource that checks
fencing tokens prevents that.`),
		Example: `  All guarantees of all services:
    locker backends

  Which locks survive a restart of their servers?
    locker backends | grep restart

  How long may a TTL be?
    locker backends | grep TTL`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return writePromises(cmd.OutOrStdout(), promises())
		},
	}
}

// guarantees are the lines of the table.
var guarantees = []struct {
	title string
	value func(promise) any
}{
	{"reaches", func(p promise) any { return p.Scope.String() }},
	{"exclusion by", func(p promise) any { return p.Exclusion.String() }},
	{"fencing: tokens rise", func(p promise) any { return p.Fencing.String() }},
	{"order of waiters", func(p promise) any { return p.Order.String() }},
	{"shared by many", func(p promise) any { return p.Shared.String() }},
	{"freed if its holder dies", func(p promise) any { return p.DeadHolder.String() }},
	{"at most later by", func(p promise) any { return p.DeadHolderSlack }},
	{"served with servers down", func(p promise) any { return p.ServerCrashes }},
	{"survives restart", func(p promise) any { return p.SurvivesRestart }},
	{"survives fail-over", func(p promise) any { return p.SurvivesFailover }},
	{"survives clock-jump", func(p promise) any { return p.SurvivesClockJump }},
	{"survives server-pause", func(p promise) any { return p.SurvivesPause }},
	{"shortest TTL", func(p promise) any { return p.MinTTL }},
	{"longest TTL", func(p promise) any { return p.MaxTTL }},
	{"longest MinHold", func(p promise) any { return p.MaxMinHold }},
	{"MinHold ends late by", func(p promise) any { return p.MinHoldSlack }},
}

// text is a value as people read it.
func text(v any) string {
	switch v := v.(type) {
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case time.Duration:
		if v == 0 {
			return "-"
		}
		return clock.Text(v)
	}
	return fmt.Sprint(v)
}

// writePromises writes a Markdown table, whose columns are aligned for those who read it as it is.
func writePromises(w io.Writer, all []promise) error {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	row := func(title string, cell func(promise) string) {
		fmt.Fprint(table, "| "+title)
		for _, p := range all {
			fmt.Fprint(table, "\t| "+strings.ReplaceAll(cell(p), "|", `\|`))
		}
		fmt.Fprintln(table, "\t|")
	}
	row("", func(p promise) string { return "`" + p.Backend + "`" })
	row("---", func(promise) string { return "---" })
	for _, g := range guarantees {
		row(g.title, func(p promise) string { return text(g.value(p)) })
	}
	_ = table.Flush() // into memory
	b.WriteByte('\n')
	for _, p := range all {
		fmt.Fprintf(&b, "- `%s` (%s) rests on %s.\n", p.Backend, p.urls, cmp.Or(p.RestsOn, "nothing"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
