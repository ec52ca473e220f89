package compare

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/compare/internal/check"
	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/lab"
)

// free is how long it may take, on a machine that is not too busy, until the lock of a holder that is gone is
// free, and somebody who waits has it.
func (b *bench) free() time.Duration { return 2*b.ttl + b.g.DeadHolderSlack + 2*time.Second }

// take has h hold each name, and waits until it does.
func (r *round) take(h *holder, set func(c *command)) group {
	g := h.hold(r, func(c *command) {
		c.Within = r.free() + 3*time.Second
		c.Again, c.Shared = true, r.sharing
		if set != nil {
			set(c)
		}
	})
	if within := r.free() + 3*time.Second; !r.wait(within, func() bool { return g.all(granted) }) {
		r.Fatalf("a lock that was free was not granted within %v (%s)", within, g.trouble())
	}
	return g
}

// queue has h ask for each name: somebody else has them. Where a fault is to come, it comes at any moment
// between two renewals: what is won or lost by some milliseconds must not be won, or lost, each time.
func (r *round) queue(h *holder) group {
	g := h.hold(r, func(c *command) {
		c.Within = 4*r.free() + 10*time.Second
		c.Again = true
	})
	waiting := r.ttl/10 + 20*time.Millisecond // long enough
	if !r.faulty {
		waiting += phase(r.task.tries, r.ttl/2) // libraries renew every third or half of a TTL
	}
	r.sleep(waiting)
	return g
}

// phase spreads the moments 0, 1, 2 … over a period: each falls into the middle of the longest gap before it.
func phase(n int, period time.Duration) time.Duration {
	return time.Duration(float64(period) * float64(bits.Reverse32(uint32(n))) / (1 << 32))
}

// finish has all holders unlock, whoever gets the lock then, too, until nobody is left.
func (r *round) finish(groups ...group) {
	released := map[*holder]map[int]bool{}
	release := func(also func(s *seen) bool) (left bool) {
		for _, g := range groups {
			if released[g.h] == nil {
				released[g.h] = map[int]bool{}
			}
			for _, id := range g.callers {
				s := g.h.caller(id)
				left = left || !s.done
				if !released[g.h][id] && also(&s) {
					released[g.h][id] = true
					g.h.send(command{Do: "release", Caller: id})
				}
			}
		}
		return left
	}
	if r.wait(r.free()+5*time.Second, func() bool { return !release(granted) }) {
		return
	}
	everybody := func(*seen) bool { return true }
	r.wait(r.free(), func() bool { return !release(everybody) })
}

// probe asks for each name once more: it shows whether something was left behind that nobody holds.
func (r *round) probe() {
	g := r.c.hold(r, func(c *command) {
		c.Within = r.free() + 3*time.Second
		c.Keep = time.Millisecond
	})
	r.wait(r.free()+5*time.Second, func() bool { return g.all(done) })
}

// handOn waits until a holder that is in trouble is followed by those who wait, if its lock has a deadline.
func (r *round) handOn(a, next group) {
	if r.sharing {
		r.beside.tell("release")
	}
	if a.all(func(s *seen) bool { return s.until == 0 }) {
		// It lasts as long as the process does: nobody may follow.
		r.sleep(r.ttl)
		return
	}
	r.wait(r.free(), func() bool { return next.all(granted) })
	r.sleep(r.ttl / 5) // to act
}

func (r *round) healthy() {
	var all []group
	for _, h := range []*holder{r.a, r.b, r.c} {
		for range 2 {
			all = append(all, h.hold(r, func(c *command) {
				c.Do, c.For, c.Keep = "loop", 3*r.ttl/2, time.Millisecond
			}))
		}
	}
	for _, g := range all {
		r.wait(r.free()+3*r.ttl, func() bool { return g.all(done) })
	}
}

// order has waiters of two clients begin to wait one after the other.
func (r *round) order() {
	a := r.take(r.a, nil)
	var all []group
	for i := range 4 {
		h := []*holder{r.b, r.c}[i%2]
		all = append(all, h.hold(r, func(c *command) {
			c.Within, c.Keep = 4*r.free(), 10*time.Millisecond
		}))
		r.sleep(330 * time.Millisecond)
	}
	r.finish(append([]group{a}, all...)...)
}

func (r *round) holderStopped() { r.stopped(false, "its process stands still") }

func (r *round) holderStoppedAct() {
	r.stopped(true, "its process stands still between a check of its lease and its act")
}

// stopped has the holder stand still, with gate set between a check and an act.
func (r *round) stopped(gate bool, proof string) {
	lab.NeedPause(r.stage)
	a := r.take(r.a, func(c *command) { c.Gate = gate })
	next := r.queue(r.b)
	if gate && !r.wait(r.free(), func() bool { return a.all(func(s *seen) bool { return s.gate }) }) {
		r.Fatalf("the holder did not get to an act")
	}
	r.faultBegin(r.a, 0)
	r.a.proc.Pause()
	r.proof(proof)
	r.handOn(a, next)
	a.tell("open")
	r.a.proc.Resume()
	r.faultEnd("")
	r.sleep(r.ttl / 5)
	r.finish(a, next)
	r.probe()
}

func (r *round) holderKilled() {
	r.take(r.a, nil)
	next := r.queue(r.b)
	r.faultBegin(r.a, 0)
	r.a.kill()
	r.proof("its process is gone")
	r.wait(r.free(), func() bool { return next.all(granted) })
	r.faultEnd("")
	r.finish(next)
	r.probe()
}

// lost returns how many bytes have vanished, or are under way for long, between h and the service since
// before, in words; "" for none.
func (h *holder) lost(before lab.Stats) string {
	now := h.traffic()
	switch requests, replies := now.Requests.Dropped-before.Requests.Dropped,
		now.Replies.Dropped-before.Replies.Dropped; {
	case requests > 0:
		return fmt.Sprintf("%d bytes of its requests vanished", requests)
	case replies > 0:
		return fmt.Sprintf("%d bytes of replies to it vanished", replies)
	case now.Requests.Held > 0:
		return fmt.Sprintf("%d bytes of its requests are held on their way", now.Requests.Held)
	}
	return ""
}

// seen waits for the evidence that a fault on the holder's network takes effect. Where it does not come soon,
// it is looked for again at the end of the fault.
func (r *round) seen(h *holder, before lab.Stats) {
	r.wait(r.ttl, func() bool { return h.lost(before) != "" })
	if r.proof(h.lost(before)); !r.proven {
		r.look = func() string { return h.lost(before) }
	}
}

func (r *round) holderCutOff() { r.cut(func(p *lab.Proxy) { p.Set(lab.Drop) }) }
func (r *round) halfCut()      { r.cut(func(p *lab.Proxy) { p.Replies(lab.Drop) }) }

// cut does something to the network of the holder, past the end of its lease.
func (r *round) cut(how func(p *lab.Proxy)) {
	a := r.take(r.a, nil)
	next := r.queue(r.b)
	before := r.a.traffic()
	r.faultBegin(r.a, 0)
	r.a.network(how)
	r.seen(r.a, before)
	r.handOn(a, next)
	r.a.heal()
	r.faultEnd("")
	r.finish(a, next)
	r.probe()
}

func (r *round) holderSlow() {
	delay := r.ttl / 10
	if r.g.Exclusion == locker.ExclusionQuorum || len(r.a.proxies) > 1 {
		delay = r.ttl / 50 // what they expect of their network is better
	}
	r.connect(r.a)
	before := r.a.traffic()
	r.faultBegin(r.a, 0)
	r.a.network(func(p *lab.Proxy) { p.SetDelay(delay) })
	a := r.take(r.a, nil)
	r.a.network(func(p *lab.Proxy) { p.Set(lab.Drop) })
	next := r.queue(r.b)
	r.seen(r.a, before)
	r.handOn(a, next)
	r.a.heal()
	r.faultEnd("")
	r.finish(a, next)
	r.probe()
}

// connect has h's client open a connection for each of its callers, while nothing is in the way.
func (r *round) connect(h *holder) {
	g := h.hold(r, func(c *command) {
		c.Name += "/warm"
		c.Within, c.Again, c.Keep = r.free()+3*time.Second, true, 20*time.Millisecond
	})
	r.wait(r.free()+3*time.Second, func() bool { return g.all(done) })
}

// attempt has the holder ask while something is done to its network, which it gives up soon.
func (r *round) attempt(how func(p *lab.Proxy)) group {
	r.connect(r.a)
	before := r.a.traffic()
	r.faultBegin(r.a, 0)
	r.a.network(how)
	a := r.a.hold(r, func(c *command) { c.Within = r.ttl / 2 })
	r.seen(r.a, before)
	return a
}

func (r *round) repliesLost() {
	a := r.attempt(func(p *lab.Proxy) { p.Replies(lab.Drop) })
	next := r.queue(r.b)
	r.wait(r.ttl, func() bool { return a.all(answered) })
	r.a.heal()
	r.faultEnd("")
	r.wait(r.free(), func() bool { return next.all(granted) })
	r.sleep(r.ttl / 5)
	r.finish(a, next)
	r.probe()
}

func (r *round) requestsLate() {
	a := r.attempt(func(p *lab.Proxy) { p.Requests(lab.Hold) })
	next := r.take(r.b, nil)
	r.wait(r.ttl, func() bool { return a.all(answered) })
	r.a.heal() // and they arrive
	r.faultEnd("")
	last := r.queue(r.c)
	r.sleep(r.ttl / 2)
	r.finish(a, next, last)
	r.probe()
}

func (r *round) unlockLate() {
	a := r.take(r.a, nil)
	before := r.a.traffic()
	r.faultBegin(r.a, 0)
	r.a.network(func(p *lab.Proxy) { p.Requests(lab.Hold) })
	a.tell("release")
	r.seen(r.a, before)
	next := r.queue(r.b)
	r.wait(r.free(), func() bool { return next.all(granted) })
	last := r.queue(r.c)
	r.a.heal() // and it arrives
	r.faultEnd("")
	r.sleep(r.ttl / 2)
	r.finish(a, next, last)
	r.probe()
}

// readersAndWriters has readers hold together while a writer waits, and then all come and go.
func (r *round) readersAndWriters() {
	r.faultBegin(nil, 0)
	r.share(r.b)
	a := r.take(r.a, nil)
	r.proof("two clients held it at the same time")
	writer := r.queue(r.c)
	a.tell("release")
	r.sleep(r.ttl / 4)
	r.beside.tell("release")
	r.wait(r.free(), func() bool { return writer.all(granted) })
	r.finish(a, r.beside, writer)
	var all []group
	for _, h := range []*holder{r.a, r.b, r.c} {
		for i := range 3 {
			all = append(all, h.hold(r, func(c *command) {
				c.Do, c.For, c.Keep, c.Shared = "loop", 3*r.ttl/2, 2*time.Millisecond, i > 0
			}))
		}
	}
	for _, g := range all {
		r.wait(r.free()+3*r.ttl, func() bool { return g.all(done) })
	}
	r.faultEnd("")
	r.probe()
}

func (r *round) sharerStopped() {
	r.share(r.c)
	r.holderStopped()
}

func (r *round) sharerCutOff() {
	r.share(r.c)
	r.holderCutOff()
}

// share has who holds from now on share with h, until the lock is to be handed on.
func (r *round) share(h *holder) {
	r.sharing = true
	r.beside = r.take(h, nil)
}

func (r *round) overload() {
	r.faultBegin(nil, 0)
	const callers = 256
	before := r.c.flood()
	r.c.send(command{Do: "flood", Name: r.run.prefix + "flood/", Count: callers, For: 2 * r.ttl})
	var all []group
	for _, h := range []*holder{r.a, r.b} {
		all = append(all, h.hold(r, func(c *command) {
			c.Do, c.For, c.Keep = "loop", 2*r.ttl, time.Millisecond
		}))
	}
	for _, g := range all {
		r.wait(r.free()+4*r.ttl, func() bool { return g.all(done) })
	}
	var taken int
	if r.wait(r.free()+4*r.ttl, func() bool { taken = r.c.flood() - before; return taken > 0 }) {
		r.proof(fmt.Sprintf("%d callers beside it took %d locks", callers, taken))
	}
	r.faultEnd("")
	r.probe()
}

// serverFault does something to servers while locks are held and waited for.
func (r *round) serverFault(f serverFault) {
	if f.before != nil {
		f.before(r.bench)
	}
	if f.after != nil {
		defer f.after(r.bench)
	}
	a := r.take(r.a, nil)
	next := r.queue(r.b)
	r.faultBegin(nil, f.takes)
	healed := false
	defer func() {
		if !healed && f.must {
			f.heal(r.bench)
		}
	}()
	r.proof(f.inject(r.bench))
	// Where it is declared that this can be borne, there is time to show it.
	within := 3 * r.ttl / 2
	bears := f.fault.Class == history.Down && f.takes <= r.g.ServerCrashes
	if bears {
		within = check.ServedWindow(r.ttl) + time.Second
	}
	// A server that has forgotten gives the lock to whoever asks first, before those who wait look again.
	rival := r.c.hold(r, func(c *command) { c.Within, c.Try = 4*r.free()+10*time.Second, true })
	// Is it served meanwhile?
	fresh := r.c.hold(r, func(c *command) {
		c.Name += "/meanwhile"
		c.Within, c.Again, c.Keep = within, true, time.Millisecond
	})
	if bears {
		r.wait(within, func() bool { return fresh.all(done) })
	}
	if f.long {
		r.sleep(13 * r.ttl / 10)
	}
	r.sleep(f.lasts)
	healed = true
	if f.fault.Class == history.Down {
		r.faultEnd("") // from here on it may be served again
	}
	if f.heal != nil {
		f.heal(r.bench)
	}
	if f.fault.Class != history.Down {
		r.faultEnd("")
	}
	r.wait(r.free(), func() bool { return fresh.all(done) })
	again := r.c.hold(r, func(c *command) {
		c.Name += "/again"
		c.Within, c.Again, c.Keep = r.free()+15*time.Second, true, time.Millisecond
	})
	r.wait(r.free()+16*time.Second, func() bool { return again.all(done) })
	r.sleep(r.ttl / 4) // whoever holds acts, side by side if it comes to that
	r.finish(a, rival, next)
	r.probe()
}
