package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/compare/internal/check"
	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/compare/internal/report"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/spelling"
	"github.com/golockers/locker/internal/stall"
)

// plan says what is compared, and for how long.
type plan struct {
	openers driver.Openers

	// urls are URLs of existing services, and names of services that the lab starts on this machine,
	// such as "redis", or "SCHEME=redis" for another backend with servers of that kind. None: all that
	// the lab finds.
	urls []string

	tries   time.Duration // everything once, however long it takes, then repeated for this long; 0: once
	ttl     time.Duration // of the locks, or the service's shortest; 0: what the machine can carry
	faults  map[string]ownFault
	shell   func(context.Context, string) (string, error) // runs a command of these, and returns its last line
	only    []string                                      // names of faults, and healthy; none: everything
	require []string                                      // rules that must be tried and hold
	dir     string                                        // for the history and the report, without an earlier run
	live    io.Writer                                     // gets messages for people
	inPlace bool                                          // live is a terminal: it gets news, and one line of progress
	lab     []labService                                  // nil: labServices

	processors int    // 0: as many as this machine has
	version    string // of the command; "": that of the module
}

// run is what all benches of a comparison share.
type run struct {
	plan
	program string // the executable of the holders
	prefix  string // of all lock names
	journal *history.Journal
	began   time.Time
	tried   time.Time     // when the first round began
	end     time.Time     // no round begins after it, except for tasks not yet tried
	places  chan struct{} // has an element for each running round
	stop    context.CancelCauseFunc
	stalled atomic.Int64 // nanoseconds in which this process was not run, counting long stalls only

	mu      sync.Mutex
	head    history.Run
	judged  *check.Checker
	line    progress
	shares  []share // of the benches that have begun
	repeats int     // trials of tasks tried before
}

// say reports what happens to people.
func (r *run) say(format string, args ...any) {
	after := time.Since(r.began).Round(100 * time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line.draw(r.live, "")
	fmt.Fprintf(r.live, "%6s  %s\n", after, fmt.Sprintf(format, args...))
}

// showProgress keeps the progress line up to date until it is stopped or ctx ends, because a second
// Ctrl-C ends the process and should leave no partial line.
func (r *run) showProgress(ctx context.Context) (stop func()) {
	draw := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if ctx.Err() == nil {
			r.line.draw(r.live, progressLine(r.shares, r.repeats, r.tried, time.Now(), r.end))
		} else if r.line.on {
			r.line.draw(r.live, "Ending early. Faults are healed and servers are stopped first.\n")
			r.line.on = false
		}
	}
	stopDrawing := stall.Every(200*time.Millisecond, draw)
	return func() {
		stopDrawing()
		draw()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.line.draw(r.live, "")
	}
}

// count records how much of its share a bench has tried; again is how many trials were repeats.
func (r *run) count(b *bench, s share, again int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shares[b.index] = s
	r.repeats += again
}

// judge judges an ended trial, and reports what it is the first to break, if anything; settled: that, and it has set
// nothing aside. If its history cannot be written, the run ends: without a record, trying is pointless.
func (r *run) judge(trial string) (settled bool) {
	events, err := r.journal.End(trial)
	if err != nil {
		r.stop(err)
	}
	r.mu.Lock()
	news, aside := r.judged.Trial(events)
	r.mu.Unlock()
	for _, line := range news {
		r.say("%s", line)
	}
	return len(news) > 0 && !aside
}

// run tries every service of the plan with every possible fault, judges what it saw, and leaves
// report.json and report.html in the plan's directory. When ctx ends, it stops, repairs what it has
// broken, ends what it has started, and reports what there is; the report then says that it was
// interrupted. Without a report, the run could not begin; with a report and an error, the report could
// not be written completely.
func (p plan) run(caller context.Context) (*history.Report, error) {
	program, err := os.Executable()
	dir, wrong := filepath.Abs(p.dir) // servers are started in their own directories
	if err = cmp.Or(err, wrong); err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	p.dir = dir
	ctx, stop := context.WithCancelCause(caller)
	defer stop(nil)
	r := &run{plan: p, program: program, stop: stop, began: time.Now()}
	r.prefix = fmt.Sprintf("locker-compare/%x/", r.began.UnixNano())
	r.head = history.Run{Began: r.began, Machine: machine(p.version), Faults: allFaults()}
	r.judged = check.New(&r.head)
	benches, err := r.services()
	if err != nil {
		return nil, err
	}
	r.line.on, r.shares = r.inPlace, make([]share, len(benches))
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	if r.journal, err = history.Create(r.dir); err != nil {
		return nil, fmt.Errorf("compare: %s contains a run or is not writable: name another "+
			"directory: %w", r.dir, err)
	}
	stopWatching := watchStalls(func(e history.Event) {
		if e.Value > int64(50*time.Millisecond) {
			r.stalled.Add(e.Value)
		}
		r.journal.Add(e)
	})
	r.all(ctx, benches)
	stopWatching()
	err = r.journal.Close()
	if ctx.Err() != nil {
		if err = context.Cause(ctx); caller.Err() != nil {
			err = errors.New("it was interrupted")
		}
	}
	for _, b := range benches {
		if b.gone != "" && err == nil {
			err = fmt.Errorf("%s did not come back: %s", b.name, b.gone)
		}
	}
	seen := r.judged.Report()
	if err != nil {
		seen.Interrupted = err.Error()
	}
	return seen, report.Save(seen, r.dir)
}

// ids are the names of faults.
func ids(faults []history.Fault) (all []string) {
	for _, f := range faults {
		all = append(all, f.ID)
	}
	return all
}

// services lists what to try. It starts nothing.
func (r *run) services() (benches []*bench, err error) {
	known, urls := r.lab, r.urls
	if known == nil {
		known = labServices
	}
	var kinds, names []string
	for _, l := range known {
		kinds = append(kinds, l.scheme)
		if r.openers[l.scheme] != nil && len(r.urls) == 0 {
			urls = append(urls, l.scheme)
		}
	}
	isURL := func(s string) bool { return strings.Contains(s, "://") }
	switch {
	case len(urls) == 0:
		return nil, errors.New("compare: the lab has none of the services that this program opens: give URLs")
	case len(r.faults) > 0 && !slices.ContainsFunc(urls, isURL):
		return nil, errors.New("compare: your own faults need services of your own: give their URLs")
	}
	for i, raw := range urls {
		scheme, _, _ := strings.Cut(raw, "://")
		kind := scheme
		if before, after, ok := strings.Cut(scheme, "="); ok && !isURL(raw) {
			scheme, kind = before, after
		}
		at := slices.Index(kinds, kind)
		switch {
		case !isURL(raw) && at < 0:
			return nil, fmt.Errorf("compare: %w: the lab has no %q: it has %s; give the URL of an existing "+
				"service%s", locker.ErrInvalid, kind, strings.Join(kinds, ", "), spelling.Meant(kind, kinds))
		case r.openers[scheme] == nil:
			return nil, fmt.Errorf("compare: %w: there is no backend %q: there is %s",
				locker.ErrInvalid, scheme, strings.Join(slices.Sorted(maps.Keys(r.openers)), ", "))
		}
		b := &bench{run: r, index: i, name: scheme}
		b.ttl, b.opens = cmp.Or(r.ttl, time.Second), 40*time.Second
		if isURL(raw) {
			b.ttl, b.opens = cmp.Or(r.ttl, 2*time.Second), 10*time.Second
			a, err := parseAddress(raw)
			if err != nil {
				return nil, fmt.Errorf("compare: %w", err)
			}
			b.start = func(b *bench) { b.staged(a) }
		} else {
			b.start = func(b *bench) {
				known[at].start(b)
				if _, rest, _ := strings.Cut(b.straight, "://"); kind != scheme { // for another backend
					b.at(scheme+"://"+cmp.Or(strings.Join(b.hosts, ","), rest), nil)
				}
			}
		}
		for n := 2; slices.Contains(names, b.name); n++ {
			b.name = scheme + "-" + strconv.Itoa(n)
		}
		names, benches = append(names, b.name), append(benches, b)
		r.head.Services = append(r.head.Services, history.Service{Name: b.name})
	}
	return benches, nil
}

// all runs the benches: all start before the first is tried.
func (r *run) all(ctx context.Context, benches []*bench) {
	each := func(f func(b *bench)) {
		var all sync.WaitGroup
		for _, b := range benches {
			all.Go(func() { f(b) })
		}
		all.Wait()
	}
	begin := func(step func(b *bench)) {
		each(func(b *bench) {
			if r.head.Services[b.index].Missing != "" {
				return
			}
			if err := b.Do(func() { step(b) }); err != nil {
				b.missing(err)
			}
		})
	}
	defer r.showProgress(ctx)()
	strained := strain()
	begin(func(b *bench) {
		b.ctx, b.Dir, b.untried = ctx, filepath.Join(r.dir, "servers", b.name), map[string]string{}
		b.start(b)
	})
	r.carry(benches, strained())
	begin((*bench).begin)
	r.mu.Lock()
	r.tried = time.Now()
	r.end = r.tried.Add(r.tries) // counted from when everything has started
	r.mu.Unlock()
	each(func(b *bench) {
		if r.head.Services[b.index].Missing == "" {
			b.tryAll()
		}
		b.Close()
	})
	_ = os.RemoveAll(filepath.Join(r.dir, "servers"))
}

// longest is the longest TTL that the run chooses, in multiples of the shortest.
const longest = 4

// carry sets how many rounds run at once, and the TTLs, for a machine on which a waking process may
// wait that long for a processor. A round needs a fifth of one, sometimes more. A renewal has two
// thirds of the TTL, in which five to ten processes wake up in turn.
func (r *run) carry(benches []*bench, wait time.Duration) {
	const usual = 20 * time.Millisecond
	times, processors := 1+int((wait-1)/usual), cmp.Or(r.processors, runtime.GOMAXPROCS(0))
	at := 2 * processors
	if times > longest {
		at = 1
	} else if times > 1 {
		at = processors
	}
	r.places = make(chan struct{}, min(len(benches), at))
	says := fmt.Sprintf("%d at once", cap(r.places))
	for _, b := range benches {
		if r.ttl == 0 {
			b.ttl *= time.Duration(min(times, longest))
		}
		if ttl := fmt.Sprintf(" · TTL %v", b.ttl); !strings.Contains(says, ttl) {
			says += ttl
		}
	}
	r.head.Machine += " · " + says
	r.say("a process waits up to %v for one of %d processors here: %s", wait.Round(time.Millisecond/10), processors, says)
}

// strain begins to measure how long this process waits for a processor when it wakes up. The returned
// function gives the 99th percentile, after half a second at least.
func strain() (tell func() time.Duration) {
	var waits []time.Duration
	began, stop := time.Now(), stall.Watch(5*time.Millisecond, func(late time.Duration) { waits = append(waits, late) })
	return func() time.Duration {
		time.Sleep(time.Until(began.Add(500 * time.Millisecond)))
		stop()
		if slices.Sort(waits); len(waits) == 0 {
			return time.Since(began)
		}
		return max(1, waits[len(waits)*99/100])
	}
}

// watchStalls reports when this process was not run for a while: delays then are nobody's fault.
func watchStalls(tell func(history.Event)) (stop func()) {
	return stall.Watch(10*time.Millisecond, func(late time.Duration) {
		if late > 10*time.Millisecond {
			tell(history.Event{Kind: history.Stall, Value: int64(late)})
		}
	})
}

// machine describes the machine and the version of locker: that of the command, or of the module in a program that
// has none.
func machine(version string) string {
	if info, ok := debug.ReadBuildInfo(); ok && version == "" {
		for _, d := range append(info.Deps, &info.Main) {
			if d.Path == "github.com/golockers/locker" {
				version = d.Version
			}
		}
	}
	return fmt.Sprintf("%s/%s · %d CPUs · %s · locker %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		runtime.Version(), cmp.Or(version, "(devel)"))
}
