// Command gate runs the tests for `make test`: it says at the end what failed, and
// where the time went.
//
// It compiles the tests of all packages first, each into a binary that is kept, and then runs the binaries.
//
// Tests of locks have bounds of time, and a machine that stands still breaks them
// through no fault of the code. gate measures all the while how slow the machine
// is. A test that failed while the machine stalled is told with its output, as any
// other, and with how long the machine stalled; then it is run again, alone, at
// most twice. What failed on a machine that did not stall, a data race, a panic, a leaked
// goroutine or a time-out is never tried again, nor are more than a few tests.
//
//	gate [-c] [-nice] [flags of go test] ./packages [-- [-after] other flags ./packages]
//
// Groups of packages with a "--" between them are tested at the same time, or with -after one after the other.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	tooMany   = 12 // tests that failed: that is no stall
	moreTries = 2
	slowest   = 12
	keptText  = 40 // lines of a failed test at the end
)

func main() {
	become(os.Args[1:])
	groups, err := parse(os.Args[1:])
	program, failed := os.Executable()
	if err = errors.Join(err, failed); err != nil || len(groups) == 0 {
		fmt.Fprintln(os.Stderr, "usage: gate [-c] [-nice] [flags of go test] packages [-- ...]", cmp.Or(err, errors.New("")))
		os.Exit(2)
	}
	g := gate{meter: watch(), out: &writer{to: os.Stdout}, bins: filepath.Join(filepath.Dir(program), "tests")}
	if !g.run(groups...) {
		os.Exit(1)
	}
}

type gate struct {
	meter *meter
	out   io.Writer // of several goroutines
	dir   string    // "": this one
	bins  string    // where the binaries are kept
	json  string    // the path of test2json
}

// writer is an io.Writer for several goroutines.
type writer struct {
	mu sync.Mutex
	to io.Writer
}

func (w *writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(b)
}

// run reports whether all tests have passed.
func (g *gate) run(groups ...group) bool {
	binaries, err := g.compileAll(groups)
	began := time.Now()
	var r results
	if err == nil && !groups[0].only {
		r, err = g.playAll(groups, binaries)
	}
	if err != nil || groups[0].only {
		if err != nil {
			fmt.Fprintln(g.out, "gate:", err)
		}
		return err == nil
	}
	r.sayTimes(g.out, time.Since(began))
	fmt.Fprintf(g.out, "The machine: %v.\n", g.meter.since(time.Time{}))
	for _, o := range r.open {
		fmt.Fprintln(g.out, o)
	}
	left := g.again(r.failed)
	if len(left) > 0 {
		sayFailed(g.out, left)
	}
	return len(left) == 0
}

// playAll runs the binaries of all groups, as many of each group at the same time as that says.
func (g *gate) playAll(groups []group, binaries [][]binary) (r results, err error) {
	var mu sync.Mutex
	before := make(chan struct{})
	close(before)
	ended := before // by the last group
	var all sync.WaitGroup
	for i, of := range groups {
		begin, end := before, make(chan struct{})
		if of.after {
			begin = ended
		}
		ended = end
		all.Go(func() {
			<-begin
			defer close(end)
			var running sync.WaitGroup
			defer running.Wait()
			for range of.atOnce {
				running.Go(func() {
					mu.Lock()
					defer mu.Unlock()
					for len(binaries[i]) > 0 {
						b := binaries[i][0]
						binaries[i] = binaries[i][1:]
						mu.Unlock()
						of, failed := g.play(b)
						mu.Lock()
						err = errors.Join(err, failed)
						r.took, r.failed, r.open = append(r.took, of.took...), append(r.failed, of.failed...), append(r.open, of.open...)
					}
				})
			}
		})
	}
	all.Wait()
	return r, err
}

// event is a line of go tool test2json.
type event struct {
	Time    time.Time
	Action  string
	Package string
	Test    string
	Elapsed float64
	Output  string
}

// outcome is a test, or a package, that has failed.
type outcome struct {
	pkg, test string // test is that of the top level; "": the package itself
	text      string
	stall     slowness // of the machine while it ran
	of        binary
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
	took   []spent
	open   []string // what package conformance says of what it played
}

// spent is what the tests of a package took.
type spent struct {
	pkg, end   string        // pass, skip or fail
	wall, work time.Duration // work is that of processors
}

// final are signs of failures that no slow machine makes.
var final = regexp.MustCompile(`WARNING: DATA RACE|(?m)^panic: |^fatal error: |panic: test timed out|` +
	`found unexpected goroutines|^SIG[A-Z]+: |ThreadSanitizer: CHECK failed`)

// said are lines of package conformance that are repeated at the end: how many scripts were played, and what was
// played again, since the machine stalled.
var said = regexp.MustCompile(`PLAYED: (\d+) scripts, (\d+) at least|REPEATED: the machine`)

// read takes in the events of the tests of a package.
func read(m *meter, pkg string, in io.Reader, out io.Writer) results {
	first := time.Now()
	var r results
	type key struct{ pkg, test string }
	texts, began := make(map[key]*strings.Builder), make(map[key]time.Time)
	enough := make(map[string]bool) // by test: scripts were played
	oneScript := strings.Contains(os.Getenv("CONFORMANCE_SEED"), "/")
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		switch {
		case len(line) > 0 && json.Unmarshal(line, &e) != nil:
			fmt.Fprintf(out, "%s", line)
			continue
		case err != nil && len(r.took) > 0:
			return r
		case err != nil: // the process has ended in a test, which is all that test2json says then
			e = event{Time: time.Now(), Action: "fail", Package: pkg, Elapsed: time.Since(first).Seconds()}
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
		case "output":
			texts[k].WriteString(e.Output)
			if n := said.FindStringSubmatch(e.Output); n != nil {
				r.open = append(r.open, e.Package+" "+e.Test+": "+strings.TrimSpace(e.Output))
				scripts, _ := strconv.Atoi(n[1])
				least, _ := strconv.Atoi(n[2])
				enough[e.Test] = enough[e.Test] || n[1] != "" && scripts >= least
			}
		case "pass", "skip", "fail":
			if e.Action == "pass" && strings.HasSuffix(e.Test, "/histories") && !enough[e.Test] && !oneScript {
				r.failed = append(r.failed, outcome{pkg: e.Package, test: top,
					text: e.Test + " passed, and has not said that it has played as many scripts as it must\n"})
			}
			if e.Test != top {
				continue // its top level tells
			}
			if e.Action == "fail" {
				text := texts[k].String()
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
				r.took = append(r.took, spent{pkg: e.Package, end: e.Action, wall: time.Duration(e.Elapsed * float64(time.Second))})
			}
		}
	}
}

// again runs what failed while the machine stalled once more, each test by itself, and a second
// time if the machine stalled again. It returns what has failed for good.
func (g *gate) again(failed []outcome) (left []outcome) {
	for _, f := range failed {
		tries := moreTries
		if len(failed) > tooMany {
			tries = 0
		}
		for ; tries > 0 && f.test != "" && f.stall.long() && !final.MatchString(f.text); tries-- {
			fmt.Fprintf(g.out, "=== %v failed, and the machine stalled meanwhile: %v. Once more, alone:\n", f, f.stall)
			r, err := g.play(f.of, "-test.count=1", "-test.run=^"+regexp.QuoteMeta(f.test)+"$")
			if err != nil {
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

// sayTimes says where the time went, of which that much has passed.
func (r results) sayTimes(out io.Writer, passed time.Duration) {
	var wall, work time.Duration
	for _, s := range r.took {
		wall, work = wall+s.wall, work+s.work
	}
	slices.SortFunc(r.took, func(a, b spent) int { return int(b.wall - a.wall) })
	fmt.Fprintf(out, "\n%d packages took %v, %v of it beside each other, and %v of processors; the slowest:\n", len(r.took),
		passed.Round(time.Second), wall.Round(time.Second), work.Round(time.Second))
	for _, s := range r.took[:min(len(r.took), slowest)] {
		fmt.Fprintf(out, "%8.1fs %8.1fs of processors  %s\n", s.wall.Seconds(), s.work.Seconds(), s.pkg)
	}
}
