package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/host"
	"github.com/golockers/locker/internal/lab"
)

// service is one subject: where it is, and what can be done to it.
type service struct {
	name    string // the head of its column
	key     string // the same, fit for a file name
	address address
	version string
	watched []server // those that the lab has started
	faults  []serverFault
	untried map[string]string // by fault: why it cannot be done here
}

// serverFault is something that is done to the servers of a service while locks are held. Its functions run
// on the goroutine of the service's bench and may fail it; those that are nil do nothing.
type serverFault struct {
	fault  history.Fault
	takes  int                           // how many servers it takes away, for as long as it lasts
	long   bool                          // it lasts for longer than a TTL before it is healed
	lasts  time.Duration                 // and for so long more
	before func(b *bench)                // before the locks are taken
	inject func(b *bench) (proof string) // returns by what it was seen to take effect; "": it was not
	heal   func(b *bench)
	after  func(b *bench) // when the trials are over

	script   func(r *round) // instead of all this, in tests
	must     bool           // heal it, whatever happens
	services []string       // those that it is for; nil: all
}

// bench is where one service is tried: its servers, its holders, its proxies.
type bench struct {
	*stage
	ctx     context.Context
	run     *run
	index   int // among the services of run.json
	open    func(b *bench) service
	opens   time.Duration // how long the service may take to answer for the first time
	svc     *service
	ttl     time.Duration
	g       locker.Guarantees
	a, b, c *holder
	begun   int    // rounds
	gone    string // why it was given up
	names   int    // locks at once
	given   bool   // by a URL
}

// begin opens the service, and starts the holders.
func (b *bench) begin() {
	b.run.live.now(b.svc.name, "starting")
	name, key := b.svc.name, b.svc.key
	s := b.open(b)
	s.name, s.key = name, key
	b.svc = &s
	b.Cleanup(watchServers(b.run.journal, name, s.watched))
	// Straight first, so that an error speaks of the service and not of a proxy.
	again := b.opens // servers have just been started
	if b.given {
		again = 3 * time.Second
	}
	client, err := openAgain(b.ctx, b.run.plan.Openers, s.address.straight, nil, b.opens, again)
	if err != nil {
		b.Stop(err)
	}
	b.g = client.Guarantees()
	defer client.Close()
	if b.g.Scope == locker.ScopeProcess {
		b.Fatalf("its locks are between goroutines of one process, and holders here are processes")
	}
	b.ttl = max(b.ttl, b.g.MinTTL)
	b.lookAtProxies()
	b.a, b.b, b.c = b.newHolder("a"), b.newHolder("b"), b.newHolder("c")
	for _, h := range []*holder{b.c, b.b, b.a} {
		// Servers that have just started may give out no lock for a while, and a user may have every right
		// but that.
		if trouble := h.warm(); trouble != "" {
			b.Fatalf("it gives out no lock: %s", trouble)
		}
	}
}

// describe says in run.json what the service is and declares.
func (b *bench) describe() {
	s := b.svc
	b.run.describe(b.index, func(h *history.Service) {
		h.URL, h.Version, h.Servers, h.Declared = s.address.shown, s.version, len(s.address.hosts),
			history.Declare(b.g)
		h.Untried = maps.Clone(s.untried)
	})
}

// lookAtProxies has clients go straight to a service that is not to be had through proxies: the name in a
// certificate is checked against the proxy's address, say.
func (b *bench) lookAtProxies() {
	var at []string
	for _, host := range b.svc.address.hosts {
		at = append(at, lab.StartProxy(b.stage, host).Addr())
	}
	client, err := openAgain(b.ctx, b.run.plan.Openers, b.svc.address.through(at), nil, b.opens, b.opens/2)
	if err != nil {
		b.svc.address.hosts, b.svc.address.why = nil, "its clients cannot be led through proxies: "+err.Error()
		return
	}
	_ = client.Close()
}

// missing says why a service is not tried at all.
func (b *bench) missing(err error) {
	if b.ctx.Err() != nil {
		err = errors.New("the run ended before it had started")
	}
	why := strings.TrimPrefix(err.Error(), "locker: open: ")
	b.run.describe(b.index, func(h *history.Service) { h.Missing = why })
	b.run.live.now(b.svc.name, "not tried")
	b.run.live.say("%s: not tried: %s", b.svc.name, why)
}

// task is one thing to try.
type task struct {
	id     string // for Plan.Only and Untried
	fault  history.Fault
	script func(r *round)
	tries  int
}

// tasks is what there is to try here, and leaves word of what is not.
func (b *bench) tasks() []*task {
	tasks := []*task{{id: "healthy", script: (*round).healthy}}
	for _, f := range clientFaults {
		if f.net && b.svc.address.hosts == nil {
			b.leave(f.fault.ID, b.svc.address.why)
		}
		if f.shares && b.g.Shared == locker.SharingNone {
			b.leave(f.fault.ID, "it has no shared locks")
		}
		tasks = append(tasks, &task{id: f.fault.ID, fault: f.fault, script: f.script})
	}
	for _, f := range b.svc.faults {
		if f.services != nil && !slices.Contains(f.services, b.svc.name) {
			b.leave(f.fault.ID, "it is not for this service")
		}
		script := func(r *round) { r.serverFault(f) }
		if f.script != nil {
			script = f.script
		}
		tasks = append(tasks, &task{id: f.fault.ID, fault: f.fault, script: script})
	}
	tasks = append(tasks, &task{id: "order", script: (*round).order})
	return slices.DeleteFunc(tasks, func(t *task) bool {
		return !b.run.plan.wants(t.id) || b.svc.untried[t.id] != ""
	})
}

// tryAll does everything once, in the order of the tasks, and then, while there is time, again and again.
func (b *bench) tryAll() {
	tasks := b.tasks()
	for failures := 0; ; {
		t, untried := b.next(tasks)
		b.run.live.left(b.svc.name, untried)
		if t == nil {
			break
		}
		before := b.run.stalled.Load()
		err := b.round(t, b.names)
		if d := time.Duration(b.run.stalled.Load() - before); d > b.ttl/4 && b.ctx.Err() == nil {
			b.run.live.say("%s: %s: tried again, since this machine stood still for %v", b.svc.name, t.id,
				d.Round(time.Millisecond))
			err = b.round(t, b.names)
		}
		if b.ctx.Err() != nil {
			return
		}
		t.tries++
		var gone *host.SkipError
		switch {
		case errors.As(err, &gone):
			b.leave(t.id, gone.Why)
			tasks = slices.DeleteFunc(tasks, func(o *task) bool { return o == t })
		case err != nil:
			if failures++; failures == 3 {
				b.gone = err.Error()
			}
		default:
			failures = 0
		}
		if b.gone != "" {
			b.run.live.say("%s: given up: %s", b.svc.name, b.gone)
			b.run.live.now(b.svc.name, "given up")
			return
		}
	}
	b.run.live.now(b.svc.name, "done")
}

// next is what to try now, nil for nothing, and how much there is that was never tried: what was tried least
// often comes first.
func (b *bench) next(tasks []*task) (best *task, untried int) {
	for _, t := range tasks {
		if t.tries == 0 {
			untried++
		}
		if best == nil || t.tries < best.tries {
			best = t
		}
	}
	if untried == 0 && time.Now().After(b.run.end) {
		return nil, 0
	}
	return best, untried
}

// quit ends the holders, all at the same time: what one gives back must not be told as held by another. Where
// nobody could write down that it was given back, they stand still first, and then they are killed.
func (b *bench) quit() {
	var all sync.WaitGroup
	holders := slices.DeleteFunc([]*holder{b.a, b.b, b.c},
		func(h *holder) bool { return h == nil || h.proc == nil })
	var full *fullError
	if errors.As(context.Cause(b.ctx), &full) {
		for _, h := range holders {
			if h.proc.Running() {
				h.proc.Pause()
			}
		}
		for _, h := range holders {
			h.proc.Kill()
		}
	}
	for _, h := range holders {
		if h.proc.Running() {
			all.Go(func() {
				h.heal()
				h.end()
			})
		}
	}
	all.Wait()
}

// leave says why something is not tried here.
func (b *bench) leave(id, why string) {
	b.svc.untried[id] = why
	b.run.describe(b.index, func(h *history.Service) { h.Untried = maps.Clone(b.svc.untried) })
}

// wait waits until cond holds, at most for limit, and reports whether it does. It does not return when the
// run is over.
func (b *bench) wait(limit time.Duration, cond func() bool) bool {
	for end := time.Now().Add(limit); !cond(); {
		if time.Now().After(end) {
			return cond()
		}
		for _, h := range []*holder{b.a, b.b, b.c} {
			if h != nil && h.crashed() {
				b.Fatalf("the process of a holder (%s) ended by itself: %s", h.process, h.lastWords())
			}
		}
		b.sleep(3 * time.Millisecond)
	}
	return true
}

// sleep does not return when the run is over.
func (b *bench) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.ctx.Done():
		b.Stop(context.Cause(b.ctx))
	}
}

// round is some locks to which the same is done at the same time: one trial.
type round struct {
	*bench
	task   *task
	id     string
	names  []string
	faulty bool          // between faultBegin and faultEnd
	proven bool          // the fault was seen to take effect
	look   func() string // for that, once more
	on     string        // the process that the fault is for

	sharing bool  // who holds, shares with
	beside  group // these
}

// round runs the task's script with a number of names of its own. What fails in it sets the trial aside, and
// is told.
func (b *bench) round(t *task, count int) error {
	b.begun++
	r := &round{bench: b, task: t, id: fmt.Sprintf("%s-%d", b.svc.key, b.begun)}
	for i := range count {
		r.names = append(r.names, fmt.Sprintf("%s%s/%d", b.run.prefix, r.id, i))
	}
	b.run.live.now(b.svc.name, t.id)
	r.event(history.Event{Kind: history.TrialBegin, Fault: t.fault.ID, Value: int64(b.ttl)})
	before := b.run.stalled.Load()
	err := b.Do(func() { t.script(r) })
	if r.faulty {
		r.faultEnd("it was healed after something else had failed")
	}
	if d := time.Duration(b.run.stalled.Load() - before); err != nil && d > 0 {
		err = fmt.Errorf("%w (this machine stood still for %v meanwhile)", err, d.Round(time.Millisecond))
	}
	if b.ctx.Err() == nil {
		// What was cut short stays without an end, and is not counted where it matters.
		end := history.Event{Kind: history.TrialEnd}
		if err != nil {
			end.Error = err.Error()
		}
		r.event(end)
		b.run.live.did(b.svc.name, t.id, err)
	}
	return cmp.Or(err, b.Do(func() { b.recover(err) }))
}

// event journals what the round does.
func (r *round) event(e history.Event) {
	e.Service, e.Trial = r.svc.name, r.id
	r.run.write(e)
}

func (r *round) fault(kind history.Kind, detail string, takes int) {
	r.event(history.Event{Kind: kind, Fault: r.task.fault.ID, Process: r.on, Detail: detail,
		Value: int64(takes)})
}

func (r *round) faultBegin(h *holder, takes int) {
	r.faulty, r.on = true, ""
	if h != nil {
		r.on = h.process
	}
	r.fault(history.FaultBegin, "", takes)
	if r.ctx.Err() != nil {
		r.Stop(context.Cause(r.ctx)) // nothing is broken of which nobody could know
	}
}

func (r *round) proof(detail string) {
	if detail != "" {
		r.proven = true
		r.fault(history.Evidence, detail, 0)
	}
}

func (r *round) faultEnd(detail string) {
	if !r.proven && r.look != nil {
		r.proof(r.look())
	}
	r.faulty = false
	r.fault(history.FaultEnd, detail, 0)
}

// recover makes the bench whole again after a round, whatever it has left: proxies pass, processes run.
func (b *bench) recover(failed error) {
	if b.ctx.Err() != nil {
		return
	}
	var killed []*holder
	for _, h := range []*holder{b.a, b.b, b.c} {
		h.heal()
		if !h.proc.Running() || failed != nil {
			// What callers of a failed round still do would be taken for the next round's.
			h.kill()
			killed = append(killed, h)
		}
	}
	for _, h := range killed {
		if err := b.Do(h.start); err != nil && b.ctx.Err() == nil {
			b.gone = cmp.Or(failed, err).Error() // the second is about a proxy
			return
		}
		h.warm()
	}
}

// lead leads all holders to another server in place of the one at index i, as a virtual address does.
func (b *bench) lead(i int, addr string) {
	for _, h := range []*holder{b.a, b.b, b.c} {
		if h.proxies[i].Target() != addr {
			h.proxies[i].Retarget(addr)
		}
	}
}
