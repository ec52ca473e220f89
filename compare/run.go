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
	"github.com/golockers/locker/internal/stall"
)

// plan says what is compared, and for how long.
type plan struct {
	openers locker.Openers

	// urls are those of services that exist already, and, of those that the lab starts on this machine,
	// "redis" and the like, or "SCHEME=redis" for another backend with servers of that kind. None: all
	// that the lab finds.
	urls []string

	tries   time.Duration // everything once, whatever it takes, and then again and again for so long; 0: once
	ttl     time.Duration // of the locks, or the service's shortest; 0: a second, or two with URLs
	faults  []ownFault
	only    []string     // names of faults, healthy and order; none: everything
	dir     string       // where the histories and the report go; there must not be a run in it
	live    io.Writer    // gets what happens, for people
	command string       // how the run was asked for
	locks   int          // that share each fault; 0: 4
	lab     []labService // nil: labServices
}

// What is tried beside faults.
const healthy, order = "healthy", "order"

// run is what all benches of a comparison share.
type run struct {
	plan
	program string // the executable of the holders
	prefix  string // of all lock names
	journal *history.Journal
	began   time.Time
	end     time.Time // no round after it, but of what was not tried at all
	stop    context.CancelCauseFunc
	stalled atomic.Int64 // nanoseconds in which this process was not run

	mu   sync.Mutex
	head history.Run
}

// write appends to the parent's journal. When that fails the run ends: what cannot be written down is
// not worth trying.
func (r *run) write(e history.Event) {
	if err := r.journal.Write(e); err != nil {
		r.stop(err)
	}
}

// say tells people what happens.
func (r *run) say(format string, args ...any) {
	after := time.Since(r.began).Round(100 * time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.live, "%6s  %s\n", after, fmt.Sprintf(format, args...))
}

// save writes run.json.
func (r *run) save() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.head.Save(r.dir)
}

// run tries every service of the plan, with every fault that can be made, judges what was seen, and
// leaves report.json and report.html in the plan's directory. When ctx ends it stops, mends what it has
// broken, ends what it has started, and judges what there is; the report then says that it was
// interrupted. No report is a run that could not begin; an error beside a report, one that could not be
// read or written as a whole.
func (p plan) run(caller context.Context) (*history.Report, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err == nil {
		p.dir, err = filepath.Abs(p.dir) // servers are started in directories of their own
	}
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	ctx, stop := context.WithCancelCause(caller)
	defer stop(nil)
	r := &run{plan: p, program: program, stop: stop, began: time.Now()}
	r.prefix = fmt.Sprintf("locker-compare/%x/", r.began.UnixNano())
	benches, err := r.services()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	r.journal, err = history.Create(filepath.Join(r.dir, "parent.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("compare: %s has a run in it, or cannot be written: name another "+
			"directory: %w", r.dir, err)
	}
	r.head.Began, r.head.Command, r.head.Machine, r.head.Faults = r.began, p.command, machine(), p.allFaults()
	if err := r.save(); err != nil {
		return nil, errors.Join(err, r.journal.Close())
	}
	stopWatching := watchStalls(func(e history.Event) {
		r.stalled.Add(e.Value)
		r.write(e)
	})
	stopTelling := r.tellBroken()
	r.all(ctx, benches)
	stopTelling()
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
	if err != nil {
		r.head.Interrupted = err.Error()
	}
	if err := r.save(); err != nil {
		r.head.Interrupted = cmp.Or(r.head.Interrupted, err.Error())
	}
	return conclude(&r.head, r.dir)
}

// recheck judges the histories in dir again, without any service, and writes the report anew.
func recheck(dir string) (*history.Report, error) {
	head, err := history.LoadRun(dir)
	if err != nil {
		return nil, err
	}
	return conclude(head, dir)
}

// conclude judges the histories in dir, and leaves report.json and report.html there.
func conclude(head *history.Run, dir string) (*history.Report, error) {
	r, err := check.Check(head, history.Read(dir))
	return r, errors.Join(err, report.Save(r, dir))
}

// check says what is wrong with the plan.
func (p *plan) check() error {
	known := things()
	for i := range p.faults {
		f := &p.faults[i]
		if err := f.check(); err != nil {
			return err
		}
		if slices.Contains(known, f.Name) {
			return fmt.Errorf("compare: two faults are named %s", f.Name)
		}
		known = append(known, f.Name)
	}
	isURL := func(s string) bool { return strings.Contains(s, "://") }
	if len(p.faults) > 0 && !slices.ContainsFunc(p.urls, isURL) {
		return errors.New("compare: faults of your own need services of your own: give their URLs")
	}
	for _, id := range p.only {
		if !slices.Contains(known, id) {
			return fmt.Errorf("compare: there is no %q to try: there is %s", id, strings.Join(known, ", "))
		}
	}
	return nil
}

// wants reports whether the plan has a fault, or what else there is, in it.
func (p *plan) wants(id string) bool { return len(p.only) == 0 || slices.Contains(p.only, id) }

// things are all that --only can have, but for faults of the user's own.
func things() []string {
	all := []string{healthy, order}
	for _, f := range (&plan{}).allFaults() {
		all = append(all, f.ID)
	}
	return all
}

// allFaults are all that the plan knows, tried or not.
func (p *plan) allFaults() (all []history.Fault) {
	for _, f := range clientFaults {
		all = append(all, f.Fault)
	}
	all = append(all, labFaults...)
	for i := range p.faults {
		all = append(all, p.faults[i].fault().Fault)
	}
	return all
}

// services lists what is to be tried. It starts nothing.
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
	if len(urls) == 0 {
		return nil, errors.New("compare: the lab has none of the services that this program opens: give URLs")
	}
	for i, raw := range urls {
		scheme, _, isURL := strings.Cut(raw, "://")
		kind := scheme
		if before, after, ok := strings.Cut(scheme, "="); ok && !isURL {
			scheme, kind = before, after
		}
		if r.openers[scheme] == nil {
			return nil, fmt.Errorf("compare: %w: there is no backend %q: there is %s",
				locker.ErrInvalid, scheme, strings.Join(slices.Sorted(maps.Keys(r.openers)), ", "))
		}
		b := &bench{run: r, index: i, name: scheme, locks: cmp.Or(r.locks, 4)}
		b.ttl, b.opens = cmp.Or(r.ttl, time.Second), 40*time.Second
		if isURL {
			b.ttl, b.opens = cmp.Or(r.ttl, 2*time.Second), 10*time.Second
			a, err := parseAddress(raw)
			if err != nil {
				return nil, fmt.Errorf("compare: %w", err)
			}
			b.start = func(b *bench) { b.staged(a, r.faults) }
		} else if at := slices.Index(kinds, kind); at < 0 {
			return nil, fmt.Errorf("compare: %w: the lab has no %q: it has %s; a service that exists already "+
				"is given by its URL", locker.ErrInvalid, kind, strings.Join(kinds, ", "))
		} else {
			b.start = func(b *bench) {
				if known[at].start(b); kind != scheme {
					b.address = b.of(scheme)
				}
			}
		}
		for n := 2; slices.Contains(names, b.name); n++ {
			b.name = scheme + "-" + strconv.Itoa(n)
		}
		b.key = strings.NewReplacer("/", "-", "+", "-", ":", "-").Replace(b.name)
		names, benches = append(names, b.name), append(benches, b)
		r.head.Services = append(r.head.Services, history.Service{Name: b.name})
	}
	for _, f := range r.faults {
		for _, name := range f.Services {
			if !slices.Contains(names, name) {
				return nil, fmt.Errorf("compare: fault %s: there is no service %q: there is %s",
					f.Name, name, strings.Join(names, ", "))
			}
		}
	}
	return benches, nil
}

// all runs the benches: they start together, and work side by side.
func (r *run) all(ctx context.Context, benches []*bench) {
	var each, started sync.WaitGroup
	var once sync.Once
	started.Add(len(benches))
	for _, b := range benches {
		each.Go(func() {
			b.ctx, b.Dir = ctx, filepath.Join(r.dir, "servers", b.key)
			defer b.Close()
			defer b.quit()
			err := b.Do(b.begin)
			started.Done()
			if err != nil {
				b.missing(err)
				return
			}
			started.Wait()
			once.Do(func() { r.end = time.Now().Add(r.tries) }) // there is time from when everything has started
			b.tryAll()
		})
	}
	each.Wait()
	_ = os.RemoveAll(filepath.Join(r.dir, "servers"))
}

// tellBroken judges what there is from time to time, and tells what is new. It spends no more than a
// twentieth of the time on it.
func (r *run) tellBroken() (stop func()) {
	var next time.Time
	told := map[string]bool{}
	return stall.Every(5*time.Second, func() {
		began := time.Now()
		if began.Before(next) {
			return
		}
		r.mu.Lock()
		head := r.head
		head.Services = slices.Clone(r.head.Services)
		r.mu.Unlock()
		seen, _ := check.Check(&head, history.Read(r.dir)) // where it was not read to its end: journals grow
		for _, row := range seen.Rows {
			for _, c := range row.Cells {
				if id := c.Service + "\x00" + row.ID; c.Broken > 0 && !told[id] {
					told[id] = true
					r.say("%s: %s: %s: %s", c.Service, row.Title, c.Verdict, c.Worst)
				}
			}
		}
		next = time.Now().Add(20 * time.Since(began))
	})
}

func machine() history.Machine {
	m := history.Machine{System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(),
		Go: runtime.Version(), Locker: "(devel)"}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range append(info.Deps, &info.Main) {
			if d.Path == "github.com/golockers/locker" && d.Version != "" {
				m.Locker = d.Version
			}
		}
	}
	return m
}
