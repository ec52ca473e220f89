package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/file"
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
		{"etcd://, etcds://, here with members=3", etcd.Guarantees(3)},
		{"zookeeper://, zookeepers://, here with 3 servers", zookeeper.Guarantees(3, nil)},
	}
}

// basis is what the promises rest on, and why there are no fencing tokens.
func (p promise) basis() string {
	text := cmp.Or(p.RestsOn, "nothing")
	if p.FencingHint != "" {
		text += "; no fencing tokens: " + p.FencingHint
	}
	return text
}

func newBackends() *cobra.Command {
	var asJSON, asMarkdown bool
	cmd := &cobra.Command{
		Use:   "backends",
		Short: "Show what each lock service guarantees",
		Long: strings.TrimSpace(`
Show what each lock service guarantees, as the code declares it. No server is
asked. No guarantee reaches past the end of a lease: a holder that was paused
can still act after it. Only a resource that checks fencing tokens prevents
that.`),
		Example: examples(
			"Which lock survives a restart of its server?",
			"locker backends",
			"",
			"The same as a Markdown table:",
			"locker backends --markdown",
		),
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := cmd.OutOrStdout()
			all := promises()
			switch {
			case asJSON && asMarkdown:
				return usage(fmt.Errorf("give --json or --markdown, not both"))
			case asJSON:
				return writePromisesJSON(w, all)
			case asMarkdown:
				return writePromisesMarkdown(w, all)
			default:
				return writePromises(w, all)
			}
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "a JSON array of objects")
	cmd.Flags().BoolVar(&asMarkdown, "markdown", false, "a Markdown table")
	return cmd
}

// guarantee is one line of the table.
type guarantee struct {
	title string
	key   string // in JSON
	value func(promise) any
}

var guarantees = []guarantee{
	{"reaches", "scope", func(p promise) any { return p.Scope.String() }},
	{"exclusion by", "exclusion", func(p promise) any { return p.Exclusion.String() }},
	{"fencing tokens rise", "fencing", func(p promise) any { return p.Fencing.String() }},
	{"order of waiters", "order", func(p promise) any { return p.Order.String() }},
	{"shared by many", "shared", func(p promise) any { return p.Shared.String() }},
	{"dead holder's lock is free", "dead_holder", func(p promise) any { return p.DeadHolder.String() }},
	{"at most later by", "dead_holder_slack_ms", func(p promise) any { return p.DeadHolderSlack }},
	{"serves with servers down", "server_crashes", func(p promise) any { return p.ServerCrashes }},
	{"survives restart", "survives_restart", func(p promise) any { return p.SurvivesRestart }},
	{"survives fail-over", "survives_failover", func(p promise) any { return p.SurvivesFailover }},
	{"survives clock jump", "survives_clock_jump", func(p promise) any { return p.SurvivesClockJump }},
	{"survives a server's pause", "survives_pause", func(p promise) any { return p.SurvivesPause }},
	{"shortest TTL", "min_ttl_ms", func(p promise) any { return p.MinTTL }},
	{"longest TTL", "max_ttl_ms", func(p promise) any { return p.MaxTTL }},
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
		if day := 24 * time.Hour; v%day == 0 {
			return strconv.Itoa(int(v/day)) + "d"
		}
		return v.String()
	}
	return fmt.Sprint(v)
}

// width is that of a terminal.
const width = 80

// writePromises writes tables with as many backends beside each other as width takes.
func writePromises(w io.Writer, all []promise) error {
	for len(all) > 0 {
		var table string
		n := 0
		for n < len(all) {
			next := promiseTable(all[:n+1])
			if first, _, _ := strings.Cut(next, "\n"); n > 0 && utf8.RuneCountInString(first) > width {
				break
			}
			table, n = next, n+1
		}
		for _, p := range all[:n] {
			table += "\n" + wrap(p.Backend+": "+p.urls+". It rests on "+p.basis()+".") + "\n"
		}
		if all = all[n:]; len(all) > 0 {
			table += "\n"
		}
		if _, err := io.WriteString(w, table); err != nil {
			return err
		}
	}
	return nil
}

// promiseTable is a table whose lines have the same length.
func promiseTable(all []promise) string {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, p := range all {
		fmt.Fprint(tw, "\t", p.Backend)
	}
	fmt.Fprintln(tw, "\t")
	for _, g := range guarantees {
		fmt.Fprint(tw, g.title)
		for _, p := range all {
			fmt.Fprint(tw, "\t", text(g.value(p)))
		}
		fmt.Fprintln(tw, "\t")
	}
	_ = tw.Flush() // into memory
	return b.String()
}

// wrap breaks text into lines that fit, all but the first one indented.
func wrap(text string) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case column == 0:
		case column+1+n > width:
			b.WriteString("\n  ")
			column = 2
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

func writePromisesMarkdown(w io.Writer, all []promise) error {
	var b strings.Builder
	row := func(title string, cell func(promise) string) {
		b.WriteString("| " + title)
		for _, p := range all {
			b.WriteString(" | " + strings.ReplaceAll(cell(p), "|", `\|`))
		}
		b.WriteString(" |\n")
	}
	row("", func(p promise) string { return "`" + p.Backend + "`" })
	row("---", func(promise) string { return "---" })
	for _, g := range guarantees {
		row(g.title, func(p promise) string { return text(g.value(p)) })
	}
	b.WriteByte('\n')
	for _, p := range all {
		fmt.Fprintf(&b, "- `%s` (%s) rests on %s.\n", p.Backend, p.urls, p.basis())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writePromisesJSON(w io.Writer, all []promise) error {
	var out []map[string]any
	for _, p := range all {
		o := map[string]any{"backend": p.Backend, "urls": p.urls, "rests_on": p.RestsOn,
			"fencing_hint": p.FencingHint}
		for _, g := range guarantees {
			v := g.value(p)
			if d, ok := v.(time.Duration); ok {
				v = d.Milliseconds()
			}
			o[g.key] = v
		}
		out = append(out, o)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(out)
}
