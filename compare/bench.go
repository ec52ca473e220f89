package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/host"
	"github.com/golockers/locker/internal/lab"
)

// bench tries one service, with its servers, its holders and their proxies. It is the lab.TB that owns
// servers and processes: a failure ends the current step with an error.
type bench struct {
	host.Host
	ctx     context.Context
	run     *run
	index   int           // among the services of the report
	name    string        // the head of its column
	opens   time.Duration // how long the service's first answer may take
	ttl     time.Duration
	start   func(b *bench)    // sets what follows
	address                   // where the service is
	version string            // of its servers
	faults  []serverFault     // what can be done to them
	untried map[string]string // by fault: why it is not possible here

	g       locker.Guarantees
	a, b, c *holder
	begun   int    // rounds
	settled bool   // the last round has broken what no round had before, and set nothing aside
	gone    string // why the bench was given up
}

// serverFault is a fault of a service's servers while locks are held. Its functions run on the
// goroutine of the service's bench and may fail it.
type serverFault struct {
	history.Fault
	takes  int                                        // how many servers it takes away while it lasts
	before func(b *bench)                             // before the locks are taken; nil: nothing
	inject func(b *bench) (proof string, heal func()) // proof: the visible effect; "": none
	after  func(b *bench)                             // when the trials have ended; nil: nothing
	own    bool                                       // it is the user's
}

// begin opens the started service, starts the holders, and puts into the report what the service is and
// declares.
func (b *bench) begin() {
	// Directly first, so that an error concerns the service and not a proxy.
	client, err := openAgain(b.ctx, b.run.openers, b.straight, nil, b.opens/2)
	if err != nil {
		b.Stop(err)
	}
	b.g = client.Guarantees()
	defer client.Close()
	if b.g.Scope == locker.ScopeProcess {
		b.Fatalf("its locks work between goroutines of one process, and holders here are processes")
	}
	b.ttl = max(b.ttl, b.g.MinTTL)
	// Clients connect directly to a service that does not work through proxies, for example because the
	// name in a certificate is checked against the proxy's address.
	var at []string
	for _, host := range b.hosts {
		at = append(at, lab.StartProxy(b, host).Addr())
	}
	if c, err := openAgain(b.ctx, b.run.openers, b.through(at), nil, b.opens); err != nil {
		b.hosts, b.why = nil, "its clients cannot use proxies: "+err.Error()
	} else {
		_ = c.Close()
	}
	b.a, b.b, b.c = b.newHolder("a"), b.newHolder("b"), b.newHolder("c")
	for _, h := range []*holder{b.c, b.b, b.a} {
		// Servers that have just started may grant no lock for a while, and a user may lack just that
		// permission.
		if trouble := h.warm(); trouble != "" {
			b.Fatalf("it grants no lock: %s", trouble)
		}
	}
	b.describe(func(s *history.Service) {
		s.URL, s.Version = b.shown, b.version
		s.Declared, s.Untried = history.Declare(b.g), maps.Clone(b.untried)
	})
}

// describe changes what the report says about the service.
func (b *bench) describe(f func(s *history.Service)) {
	b.run.mu.Lock()
	defer b.run.mu.Unlock()
	f(&b.run.head.Services[b.index])
}

// missing records why a service is not tried at all.
func (b *bench) missing(err error) {
	if b.ctx.Err() != nil {
		err = errors.New("the run ended before it started")
	}
	why := strings.TrimPrefix(err.Error(), "locker: open: ")
	b.describe(func(s *history.Service) { s.Missing = why })
	b.run.say("%s: not tried: %s", b.name, why)
}

// task is one thing to try.
type task struct {
	history.Fault // with the name for --only; no Class: none
	script        func(r *round)
}

// tasks returns what can be tried here, and records why the rest cannot.
func (b *bench) tasks() []task {
	tasks := []task{{history.Fault{ID: healthy}, (*round).healthy}}
	for _, f := range clientFaults {
		if f.Class == history.Client && b.hosts == nil {
			b.leave(f.ID, b.why)
		}
		tasks = append(tasks, task(f))
	}
	for _, f := range b.faults {
		tasks = append(tasks, task{f.Fault, func(r *round) { r.serverFault(f) }})
	}
	return slices.DeleteFunc(tasks, func(t task) bool {
		return len(b.run.only) > 0 && !slices.Contains(b.run.only, t.ID) || b.untried[t.ID] != ""
	})
}

// tryAll does everything once, however long it takes, and then repeats it while there is time.
func (b *bench) tryAll() {
	failures := 0
	tasks := b.tasks()
	once := share{of: len(tasks)}
	b.run.count(b, once, 0)
	defer func() { b.run.count(b, share{tried: once.of, of: once.of, last: time.Now()}, 0) }() // even when the bench is given up
	for turn := 0; len(tasks) > 0; turn++ {
		for _, t := range slices.Clone(tasks) {
			over, err := b.inTurn(t, turn)
			if turn == 0 {
				once.tried, once.last = once.tried+1, time.Now()
			}
			if !over {
				b.run.count(b, once, min(turn, 1))
			}
			var cannot *host.SkipError
			switch {
			case over, b.ctx.Err() != nil:
				return
			case errors.As(err, &cannot):
				b.leave(t.ID, cannot.Why)
				tasks = slices.DeleteFunc(tasks, func(o task) bool { return o.ID == t.ID })
			case err == nil:
				failures = 0
			default:
				if failures++; failures == 3 {
					b.gone = err.Error()
				}
			}
			if b.gone != "" {
				b.run.say("%s: given up: %s", b.name, b.gone)
				return
			}
		}
	}
}

// inTurn does a task when there is a place and time for it, and repeats it if the machine stalled, unless it has shown
// what is broken, and set nothing aside.
func (b *bench) inTurn(t task, turn int) (over bool, err error) {
	b.run.places <- struct{}{}
	defer func() { <-b.run.places }()
	if turn > 0 && time.Now().After(b.run.end) {
		return true, nil
	}
	before := b.run.stalled.Load()
	err = b.round(t)
	if d := time.Duration(b.run.stalled.Load() - before); d > b.ttl/4 && !b.settled && b.ctx.Err() == nil {
		b.run.say("%s: %s: repeated, because this machine stalled for %v", b.name, t.ID, d.Round(time.Millisecond))
		err = b.round(t)
	}
	return false, err
}

// round runs the task's script with some names of its own. A failure in it sets the trial aside, and is
// reported.
func (b *bench) round(t task) error {
	b.begun++
	b.settled = false
	r := &round{bench: b, task: t, id: fmt.Sprintf("%s-%d", b.name, b.begun)}
	for i := range 4 { // they share the fault
		r.names = append(r.names, fmt.Sprintf("%s%s/%d", b.run.prefix, r.id, i))
	}
	begin := history.Event{Kind: history.TrialBegin, Value: int64(b.ttl)}
	end := history.Event{Kind: history.TrialEnd}
	if t.Class != "" {
		begin.Fault = t.ID
	}
	r.event(begin)
	began, before := history.Now(), b.run.stalled.Load()
	for _, h := range b.holders() {
		h.wire.take() // drop earlier answers
	}
	err := b.Do(func() { t.script(r); b.alive() })
	if r.faulty {
		r.faultEnd("it was healed after another failure")
	}
	if b.ctx.Err() != nil {
		return err // an interrupted round is not judged
	}
	for _, h := range b.holders() {
		if h.crashed() {
			end.Process = h.process
		}
		for _, e := range h.answers(began) {
			r.event(e)
		}
	}
	if err != nil {
		if d := time.Duration(b.run.stalled.Load() - before); d > 0 {
			err = fmt.Errorf("%w (this machine stalled for %v meanwhile)", err, d.Round(time.Millisecond))
		}
		end.Error = err.Error()
	}
	r.event(end)
	b.settled = b.run.judge(r.id)
	if end.Error != "" || !b.run.inPlace {
		b.run.say("%s: %s: %s", b.name, t.ID, cmp.Or(end.Error, "done"))
	}
	return cmp.Or(err, b.Do(func() { b.recover(err) }))
}

// recover restores the bench after a round, whatever state it is in: proxies pass, processes run.
func (b *bench) recover(failed error) {
	for _, h := range b.holders() {
		if h.heal(); failed != nil || !h.proc.Running() {
			h.kill() // its callers would interfere with the next round
		}
	}
	for _, h := range b.holders() {
		if h.proc.Running() {
			continue
		}
		if err := b.Do(h.start); err != nil && b.ctx.Err() == nil {
			b.gone = cmp.Or(failed, err).Error() // the second one concerns a proxy
			return
		}
		h.warm()
	}
}

// holders are the started holders.
func (b *bench) holders() []*holder {
	return slices.DeleteFunc([]*holder{b.a, b.b, b.c}, func(h *holder) bool { return h == nil || h.proc == nil })
}

// leave records why something is not tried here.
func (b *bench) leave(id, why string) {
	b.untried[id] = why
	b.describe(func(s *history.Service) { s.Untried = maps.Clone(b.untried) })
}

// wait waits until cond holds, at most for limit, and reports whether it does. It does not return when
// the run has ended.
func (b *bench) wait(limit time.Duration, cond func() bool) bool {
	for end := time.Now().Add(limit); !cond(); {
		if time.Now().After(end) {
			return cond()
		}
		b.alive()
		b.sleep(3 * time.Millisecond)
	}
	return true
}

// alive fails if the process of a holder has ended by itself.
func (b *bench) alive() {
	for _, h := range b.holders() {
		if h.crashed() {
			b.Fatalf("the process of a holder (%s) ended by itself: %s", h.process, h.lastWords())
		}
	}
}

// sleep does not return when the run has ended.
func (b *bench) sleep(d time.Duration) {
	if clock.Sleep(b.ctx, d) != nil {
		b.Stop(context.Cause(b.ctx))
	}
}

// lead redirects all holders from the server at index i to another one, as a virtual address does.
func (b *bench) lead(i int, addr string) {
	for _, h := range b.holders() {
		if h.proxies[i].Target() != addr {
			h.proxies[i].Retarget(addr)
		}
	}
}
