package compare

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/golockers/locker/compare/internal/check"
	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/lab"
)

// clientFaults are the faults of holders and their network. They need no permission.
var clientFaults = []struct {
	history.Fault
	script func(r *round)
}{
	{history.Fault{ID: "holder-stopped", Class: history.Stopped,
		What: "The holder is paused past the TTL, as by a garbage collector or a virtual machine, and resumes " +
			"after another has held the lock."}, (*round).holderStopped},
	{history.Fault{ID: "holder-killed", Class: history.Killed,
		What: "The holder's process is killed."}, (*round).holderKilled},
	{history.Fault{ID: "holder-cut-off", Class: history.Client,
		What: "What the holder sends or is sent vanishes, without breaking a connection."},
		func(r *round) { r.cut(drop) }},
	{history.Fault{ID: "half-cut", Class: history.Client,
		What: "The holder's renewals arrive, but their answers do not."}, func(r *round) { r.cut(dropReplies) }},
	{history.Fault{ID: "replies-lost", Class: history.Client,
		What: "A client's request is carried out, but it never gets the answer. It gives up; what it left " +
			"behind must disappear."}, (*round).repliesLost},
	{history.Fault{ID: "requests-late", Class: history.Client,
		What: "A client's request is in flight for so long that the client gives up; it arrives while another " +
			"holds the lock."}, (*round).requestsLate},
	{history.Fault{ID: "unlock-late", Class: history.Client,
		What: "A holder's release arrives after its lease has ended and another holds the lock."},
		(*round).unlockLate},
}

// healthy is the trial without a fault.
const healthy = "healthy"

// round is one trial: some locks with the same fault at the same time.
type round struct {
	*bench
	task   task
	id     string
	names  []string
	faulty bool   // between faultBegin and faultEnd
	on     string // the process with the fault
}

// event journals what the round does.
func (r *round) event(e history.Event) {
	e.Service, e.Trial = r.name, r.id
	r.run.journal.Add(e)
}

func (r *round) fault(kind history.Kind, detail string, takes int) {
	r.event(history.Event{Kind: kind, Fault: r.task.ID, Process: r.on, Detail: detail, Value: int64(takes)})
}

// faultBegin begins a fault of h or, if h is nil, of that many servers.
func (r *round) faultBegin(h *holder, takes int) {
	r.faulty, r.on = true, ""
	if h != nil {
		r.on = h.process
	}
	r.fault(history.FaultBegin, "", takes)
	if r.ctx.Err() != nil {
		r.Stop(context.Cause(r.ctx)) // break nothing that could not be recorded
	}
}

func (r *round) proof(detail string) {
	if detail != "" {
		r.fault(history.Evidence, detail, 0)
	}
}

func (r *round) faultEnd(detail string) {
	r.faulty = false
	r.fault(history.FaultEnd, detail, 0)
}

// free is how long it may take, on a machine that is not too busy, until a waiter has the lock of a
// holder that is gone.
func (b *bench) free() time.Duration { return 2*b.ttl + b.g.DeadHolderSlack + 2*time.Second }

// take makes h hold each name, and waits until it does.
func (r *round) take(h *holder) group {
	c := command{Within: r.free() + 3*time.Second}
	g := h.hold(r, c)
	if !r.wait(c.Within, func() bool { return g.all(granted) }) {
		r.Fatalf("a free lock was not granted within %v (%s)", c.Within, g.trouble())
	}
	return g
}

// queue makes h ask for each name while another holds them. A following fault comes at a random moment
// between two renewals, so that a race of milliseconds is not won or lost every time.
func (r *round) queue(h *holder) group {
	g := h.hold(r, command{Within: 4*r.free() + 10*time.Second})
	// Long enough to ask; libraries renew every third or half of a TTL.
	r.sleep(r.ttl/10 + 20*time.Millisecond + clock.UpTo(r.ttl/2))
	return g
}

// finish makes all holders unlock, including those that get the lock then, until none is left.
func (r *round) finish(groups ...group) {
	whom := granted
	over := func() bool {
		left := false
		for _, g := range groups {
			left = g.release(whom) || left
		}
		return !left
	}
	if !r.wait(r.free()+5*time.Second, over) {
		whom = func(*seen) bool { return true }
		r.wait(r.free(), over)
	}
}

// end finishes, and asks for each name once more, which shows whether something was left behind.
func (r *round) end(groups ...group) {
	r.finish(groups...)
	g := r.c.hold(r, command{Within: r.free() + 3*time.Second, Keep: time.Millisecond})
	r.wait(r.free()+5*time.Second, func() bool { return g.all(done) })
}

// handOn waits until the waiters have followed a holder with a fault, if its lock has a deadline, and
// ends the fault.
func (r *round) handOn(a, next group, heal func()) {
	if a.all(func(s *seen) bool { return s.until == 0 }) {
		r.sleep(r.ttl) // the lock lasts as long as the process: nobody may follow
	} else {
		r.wait(r.free(), func() bool { return next.all(granted) })
		r.sleep(r.ttl / 5) // side by side, if it comes to that
	}
	heal()
	r.faultEnd("")
}

// healthy makes two callers of each holder lock and unlock for a while, alongside locks that are held
// throughout.
func (r *round) healthy() {
	kept := r.a.hold(r, command{Name: "/kept", Within: r.free()})
	all := []group{}
	keep := max(5*time.Millisecond, min(r.ttl/100, 80*time.Millisecond)) // a slow machine, whose TTL is long, is to renew, too
	for range 2 {
		for _, h := range r.holders() {
			all = append(all, h.hold(r, command{Within: 3 * r.ttl / 2, Loop: true, Keep: keep}))
		}
	}
	for _, g := range all {
		r.wait(r.free()+4*r.ttl, func() bool { return g.all(done) })
	}
	r.end(kept)
}

func (r *round) holderStopped() {
	lab.NeedPause(r)
	a := r.take(r.a)
	next := r.queue(r.b)
	r.faultBegin(r.a, 0)
	r.a.stop()
	r.proof("its process is paused")
	r.handOn(a, next, r.a.proc.Resume)
	r.sleep(r.ttl / 5)
	r.end(a, next)
}

func (r *round) holderKilled() {
	r.take(r.a)
	next := r.queue(r.b)
	r.faultBegin(r.a, 0)
	r.a.kill()
	r.proof("its process is gone")
	r.wait(r.free(), func() bool { return next.all(granted) })
	r.faultEnd("")
	r.end(next)
}

// Network faults.
func drop(p *lab.Proxy)         { p.Set(lab.Drop) }
func dropReplies(p *lab.Proxy)  { p.Replies(lab.Drop) }
func holdRequests(p *lab.Proxy) { p.Requests(lab.Hold) }

// disturb disturbs the holder's network, and waits for the evidence that it takes effect.
func (r *round) disturb(how func(p *lab.Proxy), meanwhile func() group) group {
	before := r.a.lost()
	r.faultBegin(r.a, 0)
	r.a.network(how)
	g := meanwhile()
	if r.wait(2*r.ttl, func() bool { return r.a.lost() > before }) {
		r.proof(fmt.Sprintf("%d bytes of its requests or replies vanished or are delayed",
			r.a.lost()-before))
	}
	return g
}

// cut disturbs the holder's network past the end of its lease.
func (r *round) cut(how func(p *lab.Proxy)) {
	a := r.take(r.a)
	next := r.queue(r.b)
	r.disturb(how, func() group { return a })
	r.handOn(a, next, r.a.heal)
	r.end(a, next)
}

// attempt makes the holder ask, and give up soon, while its network is disturbed. Its client has
// already opened a connection for each caller.
func (r *round) attempt(how func(p *lab.Proxy)) group {
	g := r.a.hold(r, command{Name: "/warm", Within: r.free() + 3*time.Second, Keep: 20 * time.Millisecond})
	r.wait(r.free()+3*time.Second, func() bool { return g.all(done) })
	return r.disturb(how, func() group { return r.a.hold(r, command{Within: r.ttl / 2}) })
}

func (r *round) repliesLost() {
	a := r.attempt(dropReplies)
	next := r.queue(r.b)
	r.wait(r.ttl, func() bool { return a.all(answered) })
	r.a.heal()
	r.faultEnd("")
	r.wait(r.free(), func() bool { return next.all(granted) })
	r.sleep(r.ttl / 5)
	r.end(a, next)
}

func (r *round) requestsLate() {
	a := r.attempt(holdRequests)
	next := r.take(r.b)
	r.wait(r.ttl, func() bool { return a.all(answered) })
	r.arrive(a, next)
}

func (r *round) unlockLate() {
	a := r.take(r.a)
	r.disturb(holdRequests, func() group { a.release(granted); return a })
	next := r.queue(r.b)
	r.wait(r.free(), func() bool { return next.all(granted) })
	r.arrive(a, next)
}

// arrive lets the delayed requests of a arrive while next holds and another waits.
func (r *round) arrive(a, next group) {
	last := r.queue(r.c)
	r.a.heal()
	r.faultEnd("")
	r.sleep(r.ttl / 2)
	r.end(a, next, last)
}

// serverFault breaks servers while locks are held and waited for.
func (r *round) serverFault(f serverFault) {
	if f.before != nil {
		f.before(r.bench)
	}
	if f.after != nil {
		defer f.after(r.bench)
	}
	a := r.take(r.a)
	next := r.queue(r.b)
	takes := f.takes
	if f.own {
		takes = map[string]int{leaderKilled.ID: 1, minorityDown.ID: max(1, r.g.ServerCrashes),
			majorityDown.ID: r.g.ServerCrashes + 1}[f.ID]
	}
	r.faultBegin(nil, takes)
	proof, mend := f.inject(r.bench)
	heal := sync.OnceFunc(mend)
	defer heal() // whatever happens
	r.proof(proof)
	// A server that has forgotten grants the lock to the first to ask, before the waiters ask again.
	rival := r.c.hold(r, command{Within: 4*r.free() + 10*time.Second, Try: true})
	// Are locks granted meanwhile? If the service declares so, allow time to show it.
	down := f.Class == history.Down
	bears := down && takes <= r.g.ServerCrashes
	within := 3 * r.ttl / 2
	if bears {
		within = check.ServedWindow(r.ttl) + time.Second
	}
	fresh := r.c.hold(r, command{Name: "/meanwhile", Within: within, Keep: time.Millisecond})
	if bears {
		r.wait(within, func() bool { return fresh.all(done) })
	}
	if down || f.own || f.Class == history.Pause || f.Class == history.Server {
		r.sleep(13 * r.ttl / 10) // past the TTL
	}
	if down {
		r.faultEnd("") // from here on locks may be granted again
	}
	heal()
	if !down {
		r.faultEnd("")
	}
	r.wait(r.free(), func() bool { return fresh.all(done) })
	again := r.c.hold(r, command{Name: "/again", Within: r.free() + 15*time.Second,
		Keep: time.Millisecond})
	r.wait(r.free()+16*time.Second, func() bool { return again.all(done) })
	r.sleep(r.ttl / 4) // side by side, if it comes to that
	r.end(a, rival, next)
}
