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

// clientFaults are what is done to holders and to their network, each with the one name that it has
// everywhere. They need nobody's permission.
var clientFaults = []struct {
	history.Fault
	script func(r *round)
}{
	{history.Fault{ID: "holder-stopped", Class: history.Stopped,
		What: "The holder stands still past the TTL, as in a pause of the garbage collector or of a virtual " +
			"machine, and goes on when another has held the lock meanwhile."}, (*round).holderStopped},
	{history.Fault{ID: "holder-killed", Class: history.Killed,
		What: "The holder's process ends without a word."}, (*round).holderKilled},
	{history.Fault{ID: "holder-cut-off", Class: history.Client,
		What: "What the holder sends and what it is sent vanishes, and no connection breaks."},
		func(r *round) { r.cut(drop) }},
	{history.Fault{ID: "half-cut", Class: history.Client,
		What: "The holder's renewals arrive, and their answers do not."}, func(r *round) { r.cut(dropReplies) }},
	{history.Fault{ID: "replies-lost", Class: history.Client,
		What: "A client's request is carried out, and it never gets the answer. It gives up; what it has left " +
			"has to go away."}, (*round).repliesLost},
	{history.Fault{ID: "requests-late", Class: history.Client,
		What: "A client's request is under way for so long that the client has given up; it arrives while " +
			"another holds the lock."}, (*round).requestsLate},
	{history.Fault{ID: "unlock-late", Class: history.Client,
		What: "A holder's release arrives when its lease is over and another holds the lock."},
		(*round).unlockLate},
}

// healthy is what is tried without a fault.
const healthy = "healthy"

// round is some locks to which the same is done at the same time: one trial.
type round struct {
	*bench
	task   task
	id     string
	names  []string
	faulty bool   // between faultBegin and faultEnd
	on     string // the process that the fault is for
}

// event journals what the round does.
func (r *round) event(e history.Event) {
	e.Service, e.Trial = r.name, r.id
	r.run.journal.Add(e)
}

func (r *round) fault(kind history.Kind, detail string, takes int) {
	r.event(history.Event{Kind: kind, Fault: r.task.ID, Process: r.on, Detail: detail, Value: int64(takes)})
}

// faultBegin begins what is done to h, or, if that is nil, to so many servers.
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
		r.fault(history.Evidence, detail, 0)
	}
}

func (r *round) faultEnd(detail string) {
	r.faulty = false
	r.fault(history.FaultEnd, detail, 0)
}

// free is how long it may take, on a machine that is not too busy, until the lock of a holder that is
// gone is free, and somebody who waits has it.
func (b *bench) free() time.Duration { return 2*b.ttl + b.g.DeadHolderSlack + 2*time.Second }

// take has h hold each name, and waits until it does.
func (r *round) take(h *holder) group {
	c := command{Within: r.free() + 3*time.Second}
	g := h.hold(r, c)
	if !r.wait(c.Within, func() bool { return g.all(granted) }) {
		r.Fatalf("a lock that was free was not granted within %v (%s)", c.Within, g.trouble())
	}
	return g
}

// queue has h ask for each name: somebody else has them. Where a fault is to come, it comes at any
// moment between two renewals: what is won or lost by some milliseconds must not be won, or lost, each
// time.
func (r *round) queue(h *holder) group {
	g := h.hold(r, command{Within: 4*r.free() + 10*time.Second})
	// Long enough to ask; and libraries renew every third or half of a TTL.
	r.sleep(r.ttl/10 + 20*time.Millisecond + clock.UpTo(r.ttl/2))
	return g
}

// finish has all holders unlock, whoever gets the lock then, too, until nobody is left.
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

// end finishes, and asks for each name once more: it shows whether something was left behind that
// nobody holds.
func (r *round) end(groups ...group) {
	r.finish(groups...)
	g := r.c.hold(r, command{Within: r.free() + 3*time.Second, Keep: time.Millisecond})
	r.wait(r.free()+5*time.Second, func() bool { return g.all(done) })
}

// handOn waits until a holder that is in trouble is followed by those who wait, if its lock has a
// deadline, and ends the trouble.
func (r *round) handOn(a, next group, heal func()) {
	if a.all(func(s *seen) bool { return s.until == 0 }) {
		r.sleep(r.ttl) // it lasts as long as the process does: nobody may follow
	} else {
		r.wait(r.free(), func() bool { return next.all(granted) })
		r.sleep(r.ttl / 5) // side by side, if it comes to that
	}
	heal()
	r.faultEnd("")
}

// healthy has two callers of each holder lock and unlock for a while, beside locks that are held all the time.
func (r *round) healthy() {
	kept := r.a.hold(r, command{Name: "/kept", Within: r.free()})
	all := []group{}
	for range 2 {
		for _, h := range r.holders() {
			all = append(all, h.hold(r, command{Within: 3 * r.ttl / 2, Loop: true, Keep: 5 * time.Millisecond}))
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
	r.proof("its process stands still")
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

// What is done to a network.
func drop(p *lab.Proxy)         { p.Set(lab.Drop) }
func dropReplies(p *lab.Proxy)  { p.Replies(lab.Drop) }
func holdRequests(p *lab.Proxy) { p.Requests(lab.Hold) }

// disturb does something to the network of the holder, and waits for the evidence that it takes effect.
func (r *round) disturb(how func(p *lab.Proxy), meanwhile func() group) group {
	before := r.a.lost()
	r.faultBegin(r.a, 0)
	r.a.network(how)
	g := meanwhile()
	if r.wait(2*r.ttl, func() bool { return r.a.lost() > before }) {
		r.proof(fmt.Sprintf("%d bytes of its requests or replies vanished, or are held on their way",
			r.a.lost()-before))
	}
	return g
}

// cut does something to the network of the holder, past the end of its lease.
func (r *round) cut(how func(p *lab.Proxy)) {
	a := r.take(r.a)
	next := r.queue(r.b)
	r.disturb(how, func() group { return a })
	r.handOn(a, next, r.a.heal)
	r.end(a, next)
}

// attempt has the holder ask, which it gives up soon, while something is done to its network. Its client has
// opened a connection for each caller before.
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

// arrive has the requests of a arrive that were held on their way, while next holds and somebody waits.
func (r *round) arrive(a, next group) {
	last := r.queue(r.c)
	r.a.heal()
	r.faultEnd("")
	r.sleep(r.ttl / 2)
	r.end(a, next, last)
}

// serverFault does something to servers while locks are held and waited for.
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
	// A server that has forgotten gives the lock to whoever asks first, before those who wait look again.
	rival := r.c.hold(r, command{Within: 4*r.free() + 10*time.Second, Try: true})
	// Is it served meanwhile? Where it is declared that this can be borne, there is time to show it.
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
		r.faultEnd("") // from here on it may be served again
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
