// Command gate runs go test for `make test`: it says at the end what failed, and
// where the time went.
//
// Tests of locks have bounds of time, and a machine that stands still breaks them
// through no fault of the code. gate measures all the while how slow the machine
// is. A test that failed while the machine stalled is told with its output, as any
// other, and with how long the machine stalled; then it is run again, alone, at
// most twice. What failed on a machine that did not stall, a data race, a panic, a leaked
// goroutine or a time-out is never tried again, nor are more than a few tests.
//
//	gate [flags of go test] ./packages
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	tooMany   = 12 // tests that failed: that is no stall
	moreTries = 2
	slowest   = 12
	keptText  = 40 // lines of a failed test at the end
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: gate [flags of go test] packages")
		os.Exit(2)
	}
	g := gate{meter: watch(), out: os.Stdout}
	if !g.run(os.Args[1:]) {
		os.Exit(1)
	}
}

type gate struct {
	meter *meter
	out   io.Writer
	dir   string // "": this one
}

// run reports whether all tests have passed.
func (g *gate) run(args []string) bool {
	r, err := g.goTest(args)
	if err == nil && len(r.failed) == 0 && r.broken != "" {
		err = fmt.Errorf("go test: %s", r.broken)
	}
	if err != nil {
		fmt.Fprintln(g.out, "gate:", err)
		return false
	}
	r.sayTimes(g.out)
	fmt.Fprintf(g.out, "The machine: %v.\n", g.meter.since(time.Time{}))
	for _, o := range r.open {
		fmt.Fprintln(g.out, o)
	}
	packages := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, ".") })
	left := g.again(args[:max(0, packages)], r.failed)
	if len(left) > 0 {
		sayFailed(g.out, left)
	}
	return len(left) == 0
}

// event is a line of go test -json.
type event struct {
	Time        time.Time
	Action      string
	Package     string
	ImportPath  string // of a build
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// outcome is a test, or a package, that has failed.
type outcome struct {
	pkg, test string // test is that of the top level; "": the package itself
	text      string
	stall     slowness // of the machine while it ran
}

func (o outcome) String() string {
	if o.test == "" {
		return o.pkg
	}
	return o.pkg + " " + o.test
}

// results is what came of a run.
type results struct {
	failed []outcome
	took   map[string]time.Duration // by package
	open   []string                 // what package conformance has tried again, since the machine stalled
	broken string                   // how go test ended
}

// final are signs of failures that no slow machine makes.
var final = regexp.MustCompile(`WARNING: DATA RACE|(?m)^panic: |^fatal error: |panic: test timed out|` +
	`found unexpected goroutines|^SIG[A-Z]+: |ThreadSanitizer: CHECK failed|\[build failed\]|\[setup failed\]`)

// goTest runs go test and prints what it says of what failed.
func (g *gate) goTest(args []string) (results, error) {
	cmd := exec.CommandContext(context.Background(), "go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr, cmd.Dir = g.out, g.dir
	// The race detector lets each process that ends sleep for a second, those that tests start among them.
	cmd.Env = append(os.Environ(), "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return results{}, err
	}
	if err := cmd.Start(); err != nil {
		return results{}, err
	}
	r := read(g.meter, out, g.out)
	if err := cmd.Wait(); err != nil {
		r.broken = err.Error()
	}
	return r, nil
}

// read takes in the events of one go test.
func read(m *meter, in io.Reader, out io.Writer) results {
	r := results{took: make(map[string]time.Duration)}
	type key struct{ pkg, test string }
	texts, began := make(map[key]*strings.Builder), make(map[key]time.Time)
	builds := make(map[string]string)
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		switch {
		case len(line) > 0 && json.Unmarshal(line, &e) != nil:
			fmt.Fprintf(out, "%s", line) // of the go command itself
			continue
		case err != nil:
			return r
		}
		top, _, _ := strings.Cut(e.Test, "/")
		k := key{e.Package, top}
		if texts[k] == nil {
			texts[k], began[k] = new(strings.Builder), e.Time
		}
		switch e.Action {
		case "cont":
			if e.Test == top { // what stalled while it waited for its turn is not its excuse
				began[k] = e.Time
			}
		case "build-output":
			fmt.Fprint(out, e.Output)
			builds[e.ImportPath] += e.Output
		case "output":
			texts[k].WriteString(e.Output)
			if strings.Contains(e.Output, "REPEATED: the machine") { // package conformance says so
				r.open = append(r.open, e.Package+" "+e.Test+": "+strings.TrimSpace(e.Output))
			}
		case "pass", "skip", "fail":
			if e.Test != top {
				continue // its top level tells
			}
			if e.Action == "fail" {
				text := builds[e.FailedBuild] + texts[k].String()
				for other, open := range texts {
					if top != "" || other == k || other.pkg != e.Package {
						continue
					}
					said := other.test + ", when the process ended:\n" + open.String()
					if final.MatchString(said) { // first: it ended the process, and so all other tests
						text = said + text
					} else {
						text += said
					}
				}
				o := outcome{pkg: e.Package, test: top, text: text, stall: m.since(began[k])}
				fmt.Fprint(out, o.text)
				ofPackage := func(f outcome) bool { return f.pkg == e.Package }
				if top != "" || !slices.ContainsFunc(r.failed, ofPackage) || final.MatchString(o.text) {
					r.failed = append(r.failed, o)
				}
			}
			delete(texts, k)
			if top == "" {
				r.took[e.Package] = time.Duration(e.Elapsed * float64(time.Second))
				said := map[string]string{"pass": "ok", "skip": "?", "fail": "FAIL"}[e.Action]
				fmt.Fprintf(out, "%-4s %s %.1fs\n", said, e.Package, e.Elapsed)
			}
		}
	}
}

// again runs what failed while the machine stalled once more, each test by itself, and a second
// time if the machine stalled again. It returns what has failed for good.
func (g *gate) again(flags []string, failed []outcome) (left []outcome) {
	for _, f := range failed {
		tries := moreTries
		if len(failed) > tooMany {
			tries = 0
		}
		for ; tries > 0 && f.test != "" && f.stall.long() && !final.MatchString(f.text); tries-- {
			fmt.Fprintf(g.out, "=== %v failed, and the machine stalled meanwhile: %v. Once more, alone:\n", f, f.stall)
			r, err := g.goTest(append(slices.Clone(flags), "-p", "1", "-count", "1", "-run",
				"^"+regexp.QuoteMeta(f.test)+"$", f.pkg))
			if err != nil || r.broken != "" && len(r.failed) == 0 {
				break
			}
			if len(r.failed) == 0 {
				fmt.Fprintf(g.out, "=== %v passed when it was tried again\n", f)
				f = outcome{}
				break
			}
			f = r.failed[0]
		}
		if f.pkg != "" {
			left = append(left, f)
		}
	}
	return left
}

// noise are lines that say nothing of why a test failed: the logs of servers.
var noise = regexp.MustCompile(`^\s*(\[[A-Za-z]|at |=== |\d+:[A-Z] |\d{4}-\d\d-\d\d |\{"level")`)

func sayFailed(out io.Writer, failed []outcome) {
	fmt.Fprintf(out, "\nFAILED: %d, with the full output above.\n", len(failed))
	for _, f := range failed {
		fmt.Fprintf(out, "\n--- %v", f)
		if f.stall.long() {
			fmt.Fprintf(out, " (the machine stalled meanwhile: %v)", f.stall)
		}
		fmt.Fprintln(out)
		kept := 0
		for line := range strings.Lines(f.text) {
			if noise.MatchString(line) || strings.TrimSpace(line) == "" {
				continue
			}
			if kept++; kept > keptText {
				fmt.Fprintln(out, "    ...")
				break
			}
			fmt.Fprintf(out, "    %.300s\n", strings.TrimRight(line, "\n"))
		}
	}
}

// sayTimes says where the time went.
func (r results) sayTimes(out io.Writer) {
	var all []string
	var sum time.Duration
	for pkg, d := range r.took {
		all, sum = append(all, pkg), sum+d
	}
	slices.SortFunc(all, func(a, b string) int { return int(r.took[b] - r.took[a]) })
	fmt.Fprintf(out, "\n%v in %d packages; the slowest:\n", sum.Round(time.Second), len(all))
	for _, pkg := range all[:min(len(all), slowest)] {
		fmt.Fprintf(out, "%8.1fs  %s\n", r.took[pkg].Seconds(), pkg)
	}
}
