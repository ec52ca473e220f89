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
	"github.com/golockers/locker/internal/host"
	"github.com/golockers/locker/internal/stall"
)

// Plan says what [Run] compares, and for how long.
type Plan struct {
	// Openers open the services. Programs of the same executable play the holders: see [PlayHolder].
	Openers locker.Openers

	// URLs are what is compared: URLs of services that exist already, and, of those that the lab starts on this
	// machine, "redis" and the like, or "SCHEME=redis" for another backend with servers of that kind. With none,
	// the lab starts all that it finds.
	URLs []string

	// For is how long to try: everything once, whatever it takes, and then again and again. Zero: everything
	// once.
	For time.Duration

	// TTL is that of the locks; where a service cannot do one that is so short, its shortest is taken. Zero
	// means one second for the lab, and two for services that exist already.
	TTL time.Duration

	// Names is how many locks share each fault: 0 means 4.
	Names int

	// Faults are the user's own, for the services in URLs.
	Faults []Fault

	// Only is what to do: names of faults, "healthy" and "order". Nil means everything.
	Only []string

	// Dir is where the histories and the report go. It is made; it must not have a run in it.
	Dir string

	// Live gets what happens, for people; nil for nobody. On a terminal it is drawn again and again.
	Live io.Writer

	// Command is how the run was asked for, for the report.
	Command string

	lab []labService // instead of labServices, in tests
}

// Result is what a run has shown: the fields of report.json, as docs/compare.md describes them.
type Result = history.Report

// run is what all benches of a run share.
type run struct {
	plan    Plan
	dir     string
	program string // the executable of the holders
	prefix  string // of all lock names
	journal *history.Journal
	live    *live
	end     time.Time // no round after it, but of what was not tried at all
	stop    context.CancelCauseFunc
	stalled atomic.Int64 // nanoseconds in which this process was not run

	mu   sync.Mutex
	head history.Run
}

// fullError ends a run that cannot be written down: it is not worth trying.
type fullError struct{ why string }

func (e *fullError) Error() string { return e.why }

// write appends to the parent's journal. When that fails the run ends.
func (r *run) write(e history.Event) {
	if _, err := r.journal.Write(e); err != nil {
		r.stop(&fullError{err.Error()})
	}
}

// save writes run.json.
func (r *run) save() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.head.Save(r.dir)
}

// describe changes what run.json says of one service.
func (r *run) describe(i int, f func(s *history.Service)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.head.Services[i])
}

// Run tries every service of the plan, with every fault that can be made, judges what was seen, and leaves
// report.json and report.html in plan.Dir. When ctx ends it stops, mends what it has broken, ends what it has
// started, and judges what there is; the result then says that it was interrupted. A nil result is a run that
// could not begin; an error beside a result, one that could not be read or written as a whole.
func Run(ctx context.Context, plan Plan) (*Result, error) {
	if err := plan.check(); err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err == nil {
		plan.Dir, err = filepath.Abs(plan.Dir) // servers are started in directories of their own
	}
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	caller := ctx
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r := &run{plan: plan, dir: plan.Dir, program: program, stop: stop,
		prefix: fmt.Sprintf("locker-compare/%x/", time.Now().UnixNano())}
	benches, err := r.services()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(plan.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	journal, err := history.Create(filepath.Join(plan.Dir, "parent.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("compare: %s has a run in it, or cannot be written: name another "+
			"directory: %w", plan.Dir, err)
	}
	r.journal = journal
	r.live = newLive(plan.Live, benches)
	r.head.Began, r.head.Command, r.head.Machine = time.Now(), plan.Command, machine()
	r.head.Faults = plan.faults()
	if err := r.save(); err != nil {
		return nil, errors.Join(err, journal.Close())
	}
	stopWatching := watchStalls(journal, "", "", func(d time.Duration) { r.stalled.Add(int64(d)) })
	stopTelling := r.tellBroken()
	r.all(ctx, benches)
	stopTelling()
	stopWatching()
	r.live.close()
	err = journal.Close()
	if ctx.Err() != nil {
		if err = context.Cause(ctx); caller.Err() != nil {
			err = errors.New("it was interrupted")
		} else if errors.Is(err, locker.ErrInvalid) {
			return nil, errors.Join(err, history.Remove(r.dir))
		}
	}
	for _, b := range benches {
		if b.gone != "" && err == nil {
			err = fmt.Errorf("%s did not come back: %s", b.svc.name, b.gone)
		}
	}
	if err != nil {
		r.head.Interrupted = err.Error()
	}
	if err := r.save(); err != nil && r.head.Interrupted == "" {
		r.head.Interrupted = err.Error()
	}
	return conclude(&r.head, r.dir)
}

// Recheck judges the histories in dir again, without any service, and writes the report anew.
func Recheck(dir string) (*Result, error) {
	head, err := history.LoadRun(dir)
	if err != nil {
		return nil, err
	}
	return conclude(head, dir)
}

// conclude judges the histories in dir, and leaves report.json and report.html there.
func conclude(head *history.Run, dir string) (*Result, error) {
	r, err := judge(head, dir)
	return r, errors.Join(err, report.Save(r, dir))
}

func judge(head *history.Run, dir string) (*Result, error) {
	return check.Check(head, history.Read(dir))
}

func (p *Plan) check() error {
	if p.Dir == "" {
		return errors.New("compare: Plan.Dir is empty: name a directory for the histories and the report")
	}
	known := map[string]bool{}
	for _, name := range things() {
		known[name] = true
	}
	for _, f := range p.Faults {
		if err := f.check(); err != nil {
			return err
		}
		if known[f.Name] {
			return fmt.Errorf("compare: two faults are named %s", f.Name)
		}
		known[f.Name] = true
	}
	if len(p.Faults) > 0 && len(p.URLs) == 0 {
		return errors.New("compare: faults of your own need services of your own: give their URLs")
	}
	for _, id := range p.Only {
		if !known[id] {
			return fmt.Errorf("compare: there is no %q to try: there is %s",
				id, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	return nil
}

// wants reports whether the plan has a fault, or what else there is, in it.
func (p *Plan) wants(id string) bool {
	return len(p.Only) == 0 || slices.Contains(p.Only, id)
}

// things are all that a plan can have in Only, but for faults of its own.
func things() []string {
	all := []string{"healthy", "order"}
	for _, f := range (&Plan{}).faults() {
		all = append(all, f.ID)
	}
	return all
}

// faults are all that the plan knows, tried or not.
func (p *Plan) faults() []history.Fault {
	var all []history.Fault
	for _, f := range clientFaults {
		all = append(all, f.fault)
	}
	all = append(all, labFaults...)
	for _, f := range p.Faults {
		all = append(all, f.describe())
	}
	return all
}

// services lists what is to be tried. It starts nothing.
func (r *run) services() ([]*bench, error) {
	var benches []*bench
	add := func(name string, ttl, opens time.Duration, open func(b *bench) service) {
		taken := func(name string) bool {
			return slices.ContainsFunc(r.head.Services, func(s history.Service) bool { return s.Name == name })
		}
		base := name
		for n := 2; taken(name); n++ {
			name = base + "-" + strconv.Itoa(n)
		}
		r.head.Services = append(r.head.Services, history.Service{Name: name})
		key := strings.NewReplacer("/", "-", "+", "-", ":", "-").Replace(name)
		b := &bench{run: r, index: len(benches), open: open, opens: opens, ttl: cmp.Or(r.plan.TTL, ttl),
			names: cmp.Or(r.plan.Names, 4)}
		b.svc = &service{name: name, key: key}
		benches = append(benches, b)
	}
	known := r.plan.lab
	if known == nil {
		known = labServices
	}
	urls := r.plan.URLs
	if len(urls) == 0 {
		for _, l := range known {
			if r.plan.Openers[l.scheme] != nil {
				urls = append(urls, l.scheme)
			}
		}
	}
	if len(urls) == 0 {
		return nil, errors.New("compare: the lab has none of the services that this program opens: give URLs")
	}
	for _, raw := range urls {
		scheme, _, isURL := strings.Cut(raw, "://")
		kind := scheme
		if !isURL {
			if before, after, ok := strings.Cut(raw, "="); ok {
				scheme, kind = before, after
			}
		}
		if r.plan.Openers[scheme] == nil {
			return nil, fmt.Errorf("compare: %w: there is no backend %q: there is %s",
				locker.ErrInvalid, scheme, strings.Join(slices.Sorted(maps.Keys(r.plan.Openers)), ", "))
		}
		if isURL {
			a, err := parseAddress(raw)
			if err != nil {
				return nil, fmt.Errorf("compare: %w", err)
			}
			add(scheme, 2*time.Second, 10*time.Second, func(*bench) service { return staged(a, r.plan.Faults) })
			benches[len(benches)-1].given = true
			continue
		}
		at := slices.IndexFunc(known, func(l labService) bool { return l.scheme == kind })
		if at < 0 {
			var kinds []string
			for _, l := range known {
				kinds = append(kinds, l.scheme)
			}
			return nil, fmt.Errorf("compare: %w: the lab has no %q: it has %s; a service that exists "+
				"already is given by its URL",
				locker.ErrInvalid, kind, strings.Join(kinds, ", "))
		}
		add(scheme, time.Second, 40*time.Second, func(b *bench) service {
			s := known[at].start(b)
			if kind != scheme {
				s.address = s.address.of(scheme)
			}
			return s
		})
	}
	for _, f := range r.plan.Faults {
		for _, name := range f.Services {
			if !slices.ContainsFunc(r.head.Services, func(s history.Service) bool { return s.Name == name }) {
				var names []string
				for _, s := range r.head.Services {
					names = append(names, s.Name)
				}
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
	// Since when there is time: not before everything has started.
	var once sync.Once
	for _, b := range benches {
		started.Add(1)
		each.Go(func() {
			b.ctx = ctx
			b.stage = &stage{host.Host{Dir: filepath.Join(r.dir, "servers", b.svc.key)}}
			defer b.Close()
			defer b.quit()
			err := b.Do(func() { b.begin(); b.describe() })
			started.Done()
			if err != nil {
				if b.given && errors.Is(err, locker.ErrInvalid) {
					r.stop(err) // a URL is wrong: the others would be tried in vain
				}
				b.missing(err)
				return
			}
			started.Wait()
			once.Do(func() {
				if r.plan.For > 0 {
					r.end = time.Now().Add(r.plan.For)
					r.live.until(r.end)
				}
			})
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
	return stall.Every(5*time.Second, func() {
		began := time.Now()
		if began.Before(next) {
			return
		}
		r.mu.Lock()
		head := r.head
		head.Services = slices.Clone(r.head.Services)
		r.mu.Unlock()
		seen, _ := judge(&head, r.dir) // where it was not read to its end: journals grow
		r.live.broke(seen)
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
