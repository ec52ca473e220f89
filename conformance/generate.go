package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/golockers/locker"
)

// Clients of a script, by their usual role. The connections of the first two, and those of others to
// some servers, can be broken; the clocks of the two in the middle may be wrong.
const (
	subject_ = iota // the client that the script is about
	rival
	friend
	other
	earlier
	late
)

// generator makes scripts: cells of the matrix of operations, faults and endings, and random histories.
type generator struct {
	k *kit
	*rand.Rand
	steps []step
	some  bool // as in the script
}

// cell is one case of the matrix.
type cell struct {
	do     verb
	fault  fault
	end    verb
	event  server
	shared bool
	behind bool // the holder had to wait for another
}

func (c cell) String() string {
	text := string(c.do)
	if c.behind {
		text += " after a wait"
	}
	if c.shared {
		text += ", shared"
	}
	if c.fault != noFault {
		text += ", " + string(c.fault)
	}
	if c.end == doServers {
		return text + ", then servers: " + string(c.event)
	}
	return text + ", then " + string(c.end)
}

// doExpire is the expiry of the lock of a client that is cut off.
const doExpire verb = "expire"

// cells are all cases that the backend and its harness support, except server events: one group for
// each operation with each fault.
func (k *kit) cells() (groups [][]cell) {
	dos := []verb{doAcquire, doRenew, doRelease, doUndo}
	if k.passes {
		dos = append(dos, doPass)
	}
	if k.raises {
		dos = append(dos, doRaise)
	}
	ends := []verb{doRelease, doUndo}
	if k.expires {
		ends = append(ends, doExpire, doClose)
	}
	if k.h.Delete != nil && k.h.Unproven[histDelete] == "" {
		ends = append(ends, doDelete)
	}
	if k.operates {
		ends = append(ends, doBreak)
	}
	if k.passes {
		ends = append(ends, doPass)
	}
	fs := []fault{noFault}
	if k.h.Cut != nil {
		fs = append(fs, faults...)
	}
	for _, do := range dos {
		for _, f := range fs {
			var group []cell
			for _, end := range ends {
				for i := range 4 {
					c := cell{do: do, fault: f, end: end, shared: i%2 == 1, behind: i > 1}
					if !c.shared || k.g.Shared != locker.SharingNone && do != doPass && do != doRaise && end != doPass {
						group = append(group, c)
					}
				}
			}
			groups = append(groups, group)
		}
	}
	return groups
}

// events are the cells of server events.
func (k *kit) events() (all []cell) {
	for _, event := range serverEvents {
		has := map[server]bool{
			byRestart:  k.h.Restart != nil,
			byFailover: k.h.Failover != nil && k.g.SurvivesFailover,
			byCrash:    k.h.Crash != nil && k.g.ServerCrashes > 0,
			byHang:     k.h.Hang != nil && k.g.ServerCrashes > 0,
			byJump:     k.h.JumpClock != nil && k.g.SurvivesClockJump,
			byJumpBack: k.h.JumpClock != nil && k.g.SurvivesClockJump,
		}[event]
		for _, do := range []verb{doAcquire, doRenew} {
			for i := range 4 {
				c := cell{do: do, end: doServers, event: event, shared: i%2 == 1, behind: i > 1}
				jumps := event == byJump || event == byJumpBack // the same for all holders
				if has && !(jumps && (do != doAcquire || c.behind)) && (!c.shared || k.g.Shared != locker.SharingNone) {
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// script makes the script of a number: a cell, or a random history.
func (k *kit) script(cells [][]cell, seed uint64, n int) script {
	g := &generator{k: k, Rand: rand.New(rand.NewPCG(seed, uint64(n)))}
	sc := script{seed: g.Uint64(), names: g.names(n), off: g.IntN(4) == 0}
	if n < specials { // first, because some take long, and a slow service plays few
		g.special(&sc, n)
		sc.steps = g.steps
		return sc
	}
	m := n - specials
	g.some = k.h.CutSome != nil && k.g.ServerCrashes > 0 && sc.seed%5 < 2
	order, nth := rand.New(rand.NewPCG(seed, 0)), m/4*2+m%2
	group := cells[order.Perm(len(cells))[nth%len(cells)]] // one of each group before a second one of any
	c := group[order.Perm(len(group))[(nth/len(cells)+nth%len(cells))%len(group)]]
	if events := k.events(); m%16 == 11 && k.virtual && len(events) > 0 {
		c = events[m/16%len(events)]
	}
	switch {
	case m%4 < 2 || c.end == doServers:
		sc.what, sc.event, g.some = c.String(), c.event, g.some && c.end != doServers
		g.cell(c)
	case m%8 == 6:
		g.special(&sc, int(seed%specials)+m/8)
	case m%4 == 3 && g.some:
		g.quorum(&sc)
	case m%8 == 2 || m%16 == 3:
		sc.what = "a crowd"
		g.crowd()
	default:
		sc.what = "a random history"
		g.random(12 + g.IntN(20))
	}
	if g.some {
		g.minorities()
	}
	sc.steps, sc.some = g.steps, g.some
	return sc
}

// minorities breaks and restores connections to some of the servers, different ones for each client.
func (g *generator) minorities() {
	for _, who := range []int{subject_, rival, other} {
		for at := 0; g.chance(65); at = g.IntN(len(g.steps) + 1) {
			g.steps = slices.Insert(g.steps, at, step{do: doFault, who: who, fault: faults[g.IntN(len(faults))]},
				does(who, g.one(doInspect, doList, doAcquire, doRenew)))
		}
		g.steps = slices.Insert(g.steps, g.IntN(len(g.steps)+1), step{do: doFault, who: who})
	}
}

// quorum makes a history of locks unknown to some servers, and whose end other servers do not learn.
func (g *generator) quorum(sc *script) {
	sc.what = "a quorum that is not another's"
	g.add(g.unkept(doAcquire, subject_, g.chance(30), 0), g.unkept(doWait, rival, g.chance(30), 0), does(subject_, doRenew),
		does(rival, doInspect), does(other, doInspect), does(other, doList), g.alone(other), does(subject_, doRenew))
	g.maybe(30, does(other, doBreak), does(subject_, doRenew))
	g.add(does(subject_, g.one(doUndo, doRelease)), does(other, doInspect), does(rival, doRelease), g.alone(late))
	at := len(g.steps)
	g.add(breaks(noFault), g.unkept(doAcquire, subject_, g.chance(30), 0), pause(g.k.air),
		breaks(faults[g.IntN(len(faults))]), does(subject_, g.one(doUndo, doUndo, doRelease)), g.alone(late))
	for i := range g.steps[at:] {
		g.steps[at+i].name = 1
	}
}

// names draws two similar names: a pair that some services may confuse.
func (g *generator) names(n int) []string {
	base := fmt.Sprintf("kit-%s-%d-", g.k.run, n)
	all := slices.Concat(troublesome(), g.k.h.Names)
	one := base + all[g.IntN(len(all))]
	const most = locker.MaxNameLen + locker.MaxPrefixLen
	switch g.IntN(9) {
	case 7:
		return []string{base + "x", "of " + base + "x"}
	case 0:
		one = base + strings.Repeat("n", most-len(base))
		at := len(base) + g.IntN(most-len(base))
		return []string{one, one[:at] + "m" + one[at+1:]}
	case 1:
		one = base + strings.Repeat("\x00", most-len(base))
		return []string{one, one[:most-1]}
	case 2:
		return []string{one, strings.ToUpper(one)}
	case 3:
		return []string{one, one + ":shared"}
	case 4:
		pairs := [][2]string{{"x", "x/"}, {"x", "x/."}, {"x/y", "x//y"}, {"x", "x "}, {"x", "x\x00"}, {"é", "e\u0301"},
			{"ß", "ss"}, {"x", "x.lock"}, {"x", "{x}"}, {"x:y", "x-y"}, {"%2F", "/"}, {"a:b", "a%3Ab"}, {"p:x", "q:x"}}
		pair := pairs[g.IntN(len(pairs))]
		return []string{base + pair[0], base + pair[1]}
	case 5:
		return []string{base + "a_b", base + "axb"}
	case 6:
		return []string{base + "[a]*", base + "a"}
	}
	return []string{one, base + all[g.IntN(len(all))] + "."}
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g *generator) add(steps ...step) { g.steps = append(g.steps, steps...) }

// maybe adds steps with a probability in percent.
func (g *generator) maybe(percent int, steps ...step) {
	if g.chance(percent) {
		g.add(steps...)
	}
}

// does is a step of one client, pause a step of all; breaks is a fault of the first client's
// connection.
func does(who int, do verb) step { return step{do: do, who: who} }
func pause(d time.Duration) step { return step{do: doPause, ttl: d} }
func breaks(f fault) step        { return step{do: doFault, who: subject_, fault: f} }

// one draws one of its arguments.
func (g *generator) one(of ...verb) verb { return of[g.IntN(len(of))] }

// label draws a label.
func (g *generator) label() string {
	label := labels[g.IntN(drawnLabels)]
	if len(label) == locker.MaxLabelLen && g.k.h.Unproven[histLabels] != "" {
		return labels[drawnLabels]
	}
	return label
}

// ttl draws a short TTL, or an unusual one that a service must not confuse with another.
func (g *generator) ttl() time.Duration {
	ttl := g.k.ttl
	return g.bounded([]time.Duration{ttl, ttl, ttl + ttl/3, ttl + 7*time.Millisecond, 2 * ttl}[g.IntN(5)])
}

// longTTL draws a TTL that outlasts the script.
func (g *generator) longTTL() time.Duration {
	all := []time.Duration{0, 0, 0, time.Minute, time.Hour, 24 * time.Hour, 25*24*time.Hour + time.Second, 366 * 24 * time.Hour}
	return g.bounded(all[g.IntN(len(all))])
}

func (g *generator) bounded(d time.Duration) time.Duration {
	if d == 0 {
		return 0
	}
	d = max(d, g.k.g.MinTTL)
	if g.k.g.MaxTTL > 0 {
		d = min(d, g.k.g.MaxTTL)
	}
	return d
}

func (g *generator) minHold() time.Duration {
	if g.k.g.MaxMinHold == 0 || g.k.h.Unproven[histMinHold] != "" || !g.chance(35) {
		return 0
	}
	return min([]time.Duration{g.k.ttl / 2, g.k.ttl * 3 / 2, 2 * g.k.ttl}[g.IntN(3)], g.k.g.MaxMinHold)
}

func (g *generator) limit() limit {
	return []limit{brief, middle, middle, beyond, whole, whole, whole, whole}[g.IntN(8)]
}

// The names in Harness.Unproven of what histories should leave out.
const (
	histDelete    = "histories-delete"   // no lock is deleted behind the backend's back
	histLabels    = "histories-labels"   // no label has the greatest length
	histMinHold   = "histories-min-hold" // nobody asks for MinHold
	sharedMinHold = "shared-min-hold"    // no sharer asks for it
)

// acquire is a step that asks for a lock.
func (g *generator) acquire(do verb, who int, shared bool, ttl time.Duration) step {
	st := step{do: do, who: who, shared: shared && g.k.g.Shared != locker.SharingNone, ttl: ttl, label: g.label()}
	if !st.shared || g.k.h.Unproven[sharedMinHold] == "" {
		if st.min = g.minHold(); st.min > 0 {
			st.ttl = min(st.ttl, time.Hour)
		}
	}
	return st
}

// alone is a step that asks for a lock that outlasts the script.
func (g *generator) alone(who int) step { return g.acquire(doAcquire, who, false, 0) }

// unkept is a step that asks for a lock without MinHold.
func (g *generator) unkept(do verb, who int, shared bool, ttl time.Duration) step {
	st := g.acquire(do, who, shared, ttl)
	st.min = 0
	return st
}

// cell makes the script of a cell: the preparation, the operation with its fault, what others do
// meanwhile, the ending, and what arrives late.
func (g *generator) cell(c cell) {
	life := g.ttl()
	if c.end != doExpire && c.end != doClose && (c.fault == noFault || g.some) && g.chance(70) {
		life = g.longTTL()
	}
	with := func() {
		if c.shared && g.chance(60) {
			g.add(g.acquire(doAcquire, friend, true, g.longTTL()))
			g.maybe(40, does(friend, doAgain))
		}
	}
	broken := breaks(c.fault)
	asks := g.acquire(doAcquire, subject_, c.shared, life)
	switch {
	case c.do == doAcquire && c.behind:
		g.add(g.acquire(doAcquire, earlier, false, g.longTTL()))
		asks.do = doWait
		if g.chance(50) {
			g.add(broken, asks)
		} else {
			g.add(asks, broken)
		}
		g.add(does(earlier, doRelease))
	case c.do == doAcquire:
		with()
		if asks.limit = g.limit(); asks.limit != whole {
			asks.ttl = g.ttl()
		}
		g.add(broken, asks)
	default:
		if c.behind {
			asks.do = doWait
			g.add(g.acquire(doAcquire, earlier, false, g.longTTL()), asks, does(earlier, doRelease),
				does(subject_, doFinish))
		} else {
			with()
			g.add(asks)
			with()
		}
		g.maybe(40, pause(g.k.ttl/time.Duration(2+g.IntN(3))))
		if c.fault == noFault && g.chance(30) {
			g.add(does(subject_, doAgain))
		}
		g.meanwhile(20)
		g.add(broken, g.onHold(c.do, subject_))
	}
	g.meanwhile(60)
	if c.fault != noFault {
		g.add(pause(g.k.ttl / time.Duration(5+g.IntN(10))))
		g.maybe(30, does(subject_, doCancel))
		g.maybe(40, step{do: g.one(doUndo, doRelease), who: subject_, limit: brief}) // the take-back may come first
	}
	stays := c.end == doExpire || (c.end == doDelete || c.end == doBreak || c.end == doClose) && g.chance(50)
	if !stays && c.fault != noFault {
		g.add(breaks(noFault), does(subject_, doFinish))
	}
	g.end(c, life)
	g.meanwhile(30)
	if stays {
		if c.shared {
			g.add(does(rival, doRelease))
		}
		g.add(breaks(noFault), does(subject_, doFinish))
	}
	for range g.IntN(3) { // an ended lock stays ended
		late := g.onHold(g.one(doRenew, doRelease, doUndo, doPass, doRaise), subject_)
		late.limit, late.old = whole, g.IntN(2)
		g.add(late)
	}
	g.meanwhile(30)
	if c.fault != noFault && g.chance(20) { // some time later the fault ends
		g.add(breaks(noFault), pause(g.k.soon+g.k.air+time.Millisecond),
			does(subject_, doInspect), step{do: doAcquire, who: subject_, name: 1, ttl: g.ttl()})
	}
}

// raises are what RaiseToken adds to the highest token: the last is more than any clock or counter adds
// by itself.
var raises = []time.Duration{-1, 0, 1, 1000, 1 << 40}

// highToken is above what some services can count to: RaiseToken to it may be refused with ErrInvalid.
const highToken = 1 << 60

// onHold is a step with a client's hold.
func (g *generator) onHold(do verb, who int) step {
	st := does(who, do)
	switch do {
	case doPass:
		st = g.acquire(doPass, who, false, g.ttl())
		st.yield = g.chance(40)
	case doRaise:
		st.ttl = raises[g.IntN(len(raises))]
	case doRenew:
		if g.chance(20) {
			st.do = doTwice
		}
	}
	st.limit = g.limit()
	return st
}

// meanwhile is what others do.
func (g *generator) meanwhile(percent int) {
	for range 4 {
		if !g.chance(percent) {
			continue
		}
		who := []int{rival, friend, other, earlier, late}[g.IntN(5)]
		shared := g.chance(35)
		at := len(g.steps)
		switch g.IntN(10) {
		case 0, 1:
			g.add(g.acquire(doAcquire, who, shared, g.longTTL()))
		case 2, 3:
			g.add(g.acquire(doWait, who, shared, g.longTTL()))
		case 4, 5:
			g.add(step{do: doInspect, who: who, limit: g.limit()})
		case 6:
			g.add(step{do: doList, who: who, old: g.IntN(2), limit: g.limit()})
		case 7:
			g.add(does(who, doListen), g.acquire(doAcquire, who, shared, 0))
		case 8:
			g.add(does(who, doCancel))
		case 9:
			g.add(step{do: doAgain, who: []int{subject_, friend}[g.IntN(2)], yield: g.chance(30)})
		}
		if g.chance(15) {
			for i := range g.steps[at:] {
				g.steps[at+i].name = 1
			}
		}
	}
}

// end ends the lock.
func (g *generator) end(c cell, life time.Duration) {
	over := func() { // until it has certainly ended; others try meanwhile
		span := life + life/2 + g.k.g.DeadHolderSlack
		for past := time.Duration(0); past < span; {
			part := max(g.k.ttl/4, life/6)
			if past >= life { // what follows is slack, which can be much more
				part = max(part, span/8)
			}
			past += part
			g.add(pause(part), g.acquire(doAcquire, rival, c.shared && g.chance(20), 0))
			g.maybe(20, does(other, doInspect), does(other, doList))
		}
	}
	switch c.end {
	case doExpire:
		if c.fault == noFault || c.fault == replyLate && g.chance(50) {
			if c.fault == replyLate {
				g.add(breaks(noFault), does(subject_, doFinish))
			}
			g.add(breaks(silent)) // a session would continue to renew
		}
		over()
	case doClose:
		g.add(does(subject_, doClose))
		if g.chance(60) {
			over()
		}
	case doDelete:
		g.add(step{do: doDelete, who: other, shared: c.shared}, g.alone(rival), does(subject_, doRenew))
	case doBreak:
		g.add(does(other, doInspect))
		if g.chance(40) { // another holder comes first, and may have left only a MinHold
			g.add(does(subject_, doRelease), g.acquire(doAcquire, rival, c.shared, 0))
			g.maybe(40, does(rival, doRelease))
		}
		g.add(does(other, doBreak), g.alone(late), does(rival, doRenew), does(subject_, g.one(doRenew, doRaise)))
		g.maybe(50, does(other, doBreak), does(late, doRenew))
	case doServers:
		g.maybe(50, does(subject_, doRenew))
		g.add(step{do: doServers, server: c.event, who: other}, pause(g.k.soon+g.k.air),
			does(other, doInspect), g.alone(rival), does(subject_, doRenew), does(friend, doRenew))
	default:
		g.maybe(50, does(subject_, doRenew))
		st := g.onHold(c.end, subject_)
		st.limit = whole
		g.add(st)
		g.maybe(30, does(subject_, doRelease))
	}
}

// specials is the number of special histories.
const specials = 23

// special makes one of the histories that need steps in a certain order, in turn.
func (g *generator) special(sc *script, turn int) {
	keep := 2 * g.k.ttl
	if g.IntN(3) == 2 { // longer than its TTL and that of a watcher
		keep = 5 * g.k.ttl
	}
	keep = min(keep, g.k.g.MaxMinHold)
	switch turn % specials {
	case 17:
		sc.what = "an operator who has seen nobody, and those that wait longer than the holder lasts"
		first := g.unkept(doAcquire, earlier, g.chance(30), 0)
		if g.chance(60) {
			first.ttl = g.bounded(g.k.ttl)
		}
		g.add(does(other, doInspect), first, g.unkept(doWait, rival, false, g.bounded(24*time.Hour)), does(other, doBreak),
			does(other, doInspect))
		if first.ttl > 0 { // it ends, and another comes before the next waiter
			g.add(pause(first.ttl+g.k.g.DeadHolderSlack+g.k.tol), g.unkept(doWait, late, false, 0), pause(first.ttl))
		}
		g.add(does(earlier, doRenew), does(earlier, doRelease), pause(2*g.k.soon+g.k.tol), does(rival, doRelease),
			pause(2*g.k.wake))
	case 18:
		sc.what = "undone, or given back, before its MinHold is over"
		hold := g.unkept(doAcquire, subject_, g.chance(30), g.bounded(g.k.ttl))
		if g.k.h.Unproven[histMinHold] == "" && (!hold.shared || g.k.h.Unproven[sharedMinHold] == "") {
			hold.min = min(4*g.k.soon, g.k.g.MaxMinHold)
		}
		g.add(hold)
		if g.chance(60) { // later than its TTL and its session
			g.add(breaks(silent), pause(hold.ttl+g.k.g.DeadHolderSlack+g.k.tol), step{do: doUndo, who: subject_, limit: brief},
				breaks(noFault), does(subject_, doFinish))
		}
		g.add(g.unkept(doWait, rival, g.chance(30), 0))
		g.maybe(40, step{do: doRelease, who: subject_, yield: true})
		g.add(does(subject_, doUndo), does(subject_, doUndo), pause(2*g.k.soon+g.k.tol), does(rival, doRelease),
			g.alone(late))
	case 19:
		sc.what = "an end that each of them is told"
		n := []int{1, 3, 60}[g.IntN(3)]
		for i := range n {
			who := []int{friend, subject_, earlier}[i%3]
			g.add(g.unkept(doAcquire, who, n > 1, 0), does(who, doRenew))
		}
		if n == 1 && g.chance(60) {
			g.add(step{do: doRaise, who: friend, ttl: 1}, pause(g.k.air))
		}
		g.maybe(50, g.unkept(doWait, rival, false, 0))
		g.add(does(other, doInspect))
		if n > 1 {
			g.maybe(60, step{do: doRelease, who: friend, old: n}) // the first of them
		}
		if n == 1 && g.k.h.Unproven[histDelete] == "" && g.chance(40) {
			g.add(does(other, doDelete))
		} else {
			g.add(does(other, doBreak))
		}
		g.add(pause(g.k.soon+2*g.k.air), does(subject_, doRenew), does(earlier, doRenew), does(friend, doRenew), g.alone(late))
	case 20:
		sc.what = "a gate in a second generation of sharers"
		g.add(g.unkept(doAcquire, friend, true, 0), g.unkept(doWait, rival, false, 0),
			step{do: doFault, who: rival, fault: silent}, does(rival, doCancel), pause(g.k.air), does(friend, doRelease),
			step{do: doFault, who: rival}, does(rival, doFinish), pause(time.Second+g.k.tol),
			g.unkept(doAcquire, other, true, 0), g.unkept(doWait, rival, false, 0), g.unkept(doAcquire, late, true, 0))
	case 21:
		sc.what = "a writer that does not know whether it waits, and is undone"
		asks := g.unkept(doWait, subject_, false, g.bounded(g.k.ttl/8)) // it ends before its note
		g.add(g.unkept(doAcquire, friend, true, 0), does(subject_, doListen), breaks(replyLost), asks, pause(g.k.air/2),
			does(subject_, doCancel), breaks(noFault), does(subject_, doFinish), pause(g.k.air+g.k.air/4),
			does(subject_, doUndo), does(subject_, doUndo), g.unkept(doAcquire, other, true, 0))
	case 22:
		sc.what = "a break of the holder before a MinHold"
		next := g.unkept(doAcquire, rival, g.chance(30), g.bounded(g.k.ttl))
		if g.k.h.Unproven[histMinHold] == "" && (!next.shared || g.k.h.Unproven[sharedMinHold] == "") {
			next.min = min(4*g.k.ttl, g.k.g.MaxMinHold)
		}
		g.add(g.unkept(doAcquire, subject_, g.chance(30), 0), does(other, doInspect), does(subject_, doRelease), next,
			does(rival, doClose), does(other, doBreak), g.alone(late), does(other, doInspect))
	case 13:
		sc.what = "nobody but the backend ends a request"
		asks := step{do: g.one(doAcquire, doRenew, doRelease, doUndo), who: subject_, limit: never}
		if asks.do == doAcquire {
			asks.name = 1
		}
		g.add(g.unkept(doAcquire, subject_, g.chance(30), 0), breaks(faults[g.IntN(len(faults))]), asks,
			pause(g.k.patience+g.k.soon), breaks(noFault), does(subject_, doFinish))
	case 14:
		sc.what = "sharers whose leases end one after the other"
		first, last := g.unkept(doAcquire, friend, true, 0), g.unkept(doAcquire, other, true, g.bounded(2*g.k.ttl))
		if g.chance(50) && g.k.h.Unproven[histMinHold] == "" && g.k.h.Unproven[sharedMinHold] == "" {
			first.min, last.min = keep, keep/2
		}
		g.add(first, g.unkept(doAcquire, subject_, true, g.bounded(g.k.ttl)), last, breaks(silent), does(rival, doInspect))
		g.maybe(50, does(other, doRenew))
		g.add(does(other, doRelease), does(other, doRelease), does(rival, doInspect), pause(g.k.ttl+g.k.soon+g.k.tol),
			does(rival, doList), g.unkept(doAcquire, late, g.chance(60), 0), does(friend, doRenew), g.alone(earlier),
			does(rival, doInspect), does(friend, doRelease), does(rival, doBreak), does(late, doRenew))
	case 15:
		sc.what = "a request that arrives after it was undone"
		asks := g.unkept(doAcquire, subject_, g.chance(30), 0)
		asks.limit = brief
		undo := does(subject_, doUndo)
		undo.limit = brief
		g.add(breaks(heldOpen), asks, does(subject_, doFinish), undo, does(subject_, doFinish),
			does(subject_, doUndo), breaks(noFault), pause(g.k.air), g.alone(rival), does(subject_, doUndo))
	case 16:
		sc.what = "what ends with its context, or with Close"
		g.add(g.alone(earlier), g.acquire(doWait, rival, g.chance(40), 0), does(subject_, doInspect), breaks(silent))
		for _, do := range []verb{doInspect, doList, doBreak} {
			g.add(step{do: do, who: subject_, limit: brief})
		}
		g.add(pause(2*g.k.soon), breaks(noFault), does(rival, doClose), pause(g.k.ttl/10), does(earlier, doRelease))
	case 11:
		sc.what = "an observer whose request is late"
		shared := g.chance(30)
		hold := g.unkept(doAcquire, subject_, shared, g.bounded(g.k.ttl))
		g.add(hold, step{do: doFault, who: rival, fault: held}, g.alone(rival), pause(hold.ttl*2/3), does(subject_, doRenew),
			step{do: doFault, who: rival}, does(rival, doFinish), breaks(silent))
		g.end(cell{end: doExpire, fault: silent, shared: shared}, hold.ttl)
	case 12:
		sc.what = "nobody looks while its holder is gone"
		hold := g.unkept(doAcquire, subject_, g.chance(50), g.bounded(g.k.ttl))
		g.add(hold)
		g.maybe(50, g.unkept(doWait, rival, false, 0), does(rival, doCancel))
		g.add(breaks(silent), pause(hold.ttl+g.k.g.DeadHolderSlack+g.k.tol+g.k.air))
		g.maybe(60, g.alone(late))
	case 9:
		sc.what = "the least TTL"
		g.add(g.unkept(doAcquire, subject_, g.chance(30), max(g.k.g.MinTTL, leastTTL)), does(subject_, doRenew),
			g.alone(rival), does(subject_, doRelease), g.alone(late))
	case 10:
		sc.what = "renewed again and again"
		hold := g.unkept(doAcquire, subject_, g.chance(30), g.bounded(g.k.ttl))
		g.add(hold)
		for range 3 {
			g.add(pause(hold.ttl*2/3), does(subject_, doRenew))
		}
		g.add(pause(hold.ttl*2/3), g.alone(rival), does(subject_, doRenew))
	case 6:
		sc.what = "deleted before those that wait"
		g.add(g.acquire(doAcquire, earlier, g.chance(20), 0), g.acquire(doWait, rival, false, g.ttl()),
			g.acquire(doWait, other, g.chance(30), 0), does(late, doDelete), pause(g.k.ttl/10),
			step{do: g.one(doRenew, doRelease, doRelease), who: earlier}, pause(g.k.ttl))
		if g.k.h.Unproven[histDelete] != "" {
			g.steps[3] = does(earlier, doRelease)
		}
	case 7:
		sc.what = "a break beside a name that is alike"
		if len(sc.names[0]) < locker.MaxNameLen {
			sc.names[1] = sc.names[0] + []string{"x", "/x", ":x", "\x00", "*", ":shared"}[g.IntN(6)]
		}
		beside := g.alone(rival)
		beside.name = 1
		g.add(g.acquire(doAcquire, friend, g.chance(30), 0), beside, does(other, doInspect),
			does(other, doBreak), step{do: doRenew, who: rival, name: 1}, does(friend, doRaise), does(friend, doRenew))
	case 8:
		sc.what = "tokens that are raised"
		hold := g.unkept(doAcquire, subject_, false, 0)
		hold.label = labels[drawnLabels+1]
		raise := func(i int) step { return step{do: doRaise, who: subject_, ttl: raises[i]} }
		g.add(g.unkept(doAcquire, earlier, false, 0), does(earlier, doRelease), hold)
		g.maybe(70, raise(3)) // before there is a waiter, and again meanwhile
		g.add(g.unkept(doWait, rival, g.chance(20), 0), does(other, doInspect))
		g.add(raise(2), raise(3), raise(4))
		g.maybe(30, step{do: doRaise, who: subject_, ttl: highToken})
		g.maybe(70, raise(2)) // to a lower token
		beside := g.alone(other)
		beside.name = 1
		g.add(beside, does(subject_, doAgain), does(other, doInspect), does(other, doList), does(subject_, doRelease),
			pause(2*g.k.soon+g.k.tol), does(rival, doRelease),
			g.alone(late), step{do: doRaise, who: subject_, ttl: 1}, does(late, doRelease),
			g.acquire(doAcquire, friend, g.chance(50), 0))
	case 5:
		sc.what = "a run of sharers"
		g.add(g.alone(earlier))
		for _, who := range []int{rival, friend, other} {
			g.add(g.acquire(doWait, who, true, 0))
		}
		g.maybe(50, g.acquire(doWait, late, false, 0))
		g.add(does(earlier, doRelease), pause(2*g.k.soon+g.k.tol))
	case 3:
		sc.what = "a turn for another"
		g.add(g.alone(subject_), g.acquire(doWait, rival, g.chance(60), 0))
		g.maybe(40, step{do: doFault, who: rival, fault: silent}) // it does not come for the lock
		pass := g.acquire(doPass, subject_, false, g.ttl())
		pass.yield = g.chance(70)
		g.add(pass, does(other, doInspect), does(other, doList), g.alone(late))
	case 4:
		sc.what = "told late"
		ttl := g.ttl()
		g.add(g.alone(earlier), g.acquire(doWait, subject_, g.chance(30), ttl), breaks(replyLate),
			does(earlier, doRelease), pause(g.k.ttl/5), breaks(noFault), does(subject_, doFinish),
			breaks(silent))
		g.end(cell{end: doExpire, fault: silent}, ttl)
	case 0:
		sc.what = "MinHold, and the holder is gone"
		shared := g.chance(50)
		joins := shared && g.chance(50)
		if joins {
			g.add(g.unkept(doAcquire, friend, true, 0))
		}
		hold := g.acquire(doAcquire, subject_, shared, g.bounded(g.k.ttl))
		if hold.min = keep; g.k.h.Unproven[histMinHold] != "" || hold.shared && g.k.h.Unproven[sharedMinHold] != "" {
			hold.min = 0
		}
		if g.chance(50) && !shared && g.k.passes {
			pass := hold
			pass.do = doPass
			hold.min = 0
			g.add(hold, pass)
		} else {
			g.add(hold)
		}
		for range g.IntN(3) {
			g.add(step{do: g.one(doRenew, doAgain), who: subject_})
		}
		if !joins && shared && g.chance(40) {
			joins = true
			g.add(g.unkept(doAcquire, friend, true, g.bounded(g.k.ttl)))
		}
		if joins {
			g.add(does(friend, doRelease))
		}
		g.end(cell{end: g.one(doExpire, doClose)}, max(g.k.ttl, keep))
	case 1:
		sc.what = "what was missed"
		g.add(g.alone(friend), g.acquire(doWait, subject_, g.chance(30), g.ttl()),
			step{do: doFault, who: subject_, fault: []fault{silent, replyLost, reset}[g.IntN(3)]},
			does(friend, doRelease), pause(g.k.ttl/10), breaks(noFault),
			pause(2*g.k.soon+g.k.air))
	case 2:
		sc.what = "a gate that opens"
		g.add(g.acquire(doAcquire, friend, true, 0), g.acquire(doWait, rival, false, 0), g.acquire(doWait, other, true, 0))
		g.maybe(80, g.unkept(doWait, earlier, false, 0)) // another writer, which keeps the gate shut
		g.add(g.acquire(doWait, late, true, 0), pause(g.k.ttl/10))
		g.maybe(50, pause(time.Second+g.k.tol), g.unkept(doAcquire, subject_, true, 0)) // after its note was renewed
		g.add(does(rival, doCancel), pause(g.k.ttl/10))
		g.maybe(40, pause(3*g.k.wake))
		g.add(g.acquire(doAcquire, subject_, true, 0))
	}
}

// crowd makes a history of many waiters: in line, in a run of sharers, before a gate.
func (g *generator) crowd() {
	first := g.chance(60) // the holders are sharers
	g.add(g.acquire(doAcquire, friend, first, g.longTTL()))
	if first && g.chance(50) {
		g.add(g.acquire(doAcquire, subject_, true, g.longTTL()))
	}
	for range 4 + g.IntN(6) {
		who := []int{subject_, rival, other, earlier, late}[g.IntN(5)]
		wait := g.acquire(doWait, who, g.chance(50), g.longTTL())
		switch g.IntN(10) {
		case 0, 1, 2, 3, 4:
			g.add(wait)
		case 5:
			g.add(does(who, doCancel), g.acquire(doAcquire, []int{rival, earlier, late}[g.IntN(3)], true, 0))
		case 6:
			wait.do = doAcquire
			g.add(wait)
		case 7:
			g.add(does(who, doInspect))
		case 8:
			g.add(pause(g.k.ttl * time.Duration(1+g.IntN(12)) / 10))
		case 9:
			g.add(does(friend, doAgain))
		}
	}
	for range 2 + g.IntN(5) {
		who := []int{friend, friend, subject_, rival, other, earlier, late}[g.IntN(7)]
		do := g.one(doRelease, doRelease, doPass, doPass, doRenew, doCancel, doUndo)
		g.add(g.onHold(do, who))
		g.maybe(30, g.acquire(doAcquire, g.IntN(late+1), g.chance(50), 0))
	}
}

// random makes a history of n steps.
func (g *generator) random(n int) {
	faulty := g.k.h.Cut != nil && g.chance(60)
	for range n {
		who := g.IntN(late + 1)
		name := 0
		if g.chance(25) {
			name = 1
		}
		shared := g.chance(40)
		var st step
		switch g.IntN(22) {
		case 0, 1, 2:
			st = g.acquire(doAcquire, who, shared, g.longTTL())
			st.limit = g.limit()
		case 3, 4, 5:
			st = g.acquire(doWait, who, shared, g.longTTL())
			if g.chance(30) {
				st.limit = middle
			}
		case 6:
			st = step{do: doAgain}
		case 7, 8:
			st = g.onHold(doRenew, who)
		case 9, 10, 11:
			st = g.onHold(doRelease, who)
		case 12:
			st = g.onHold(doUndo, who)
		case 13, 14:
			st = g.onHold(doPass, who)
		case 15:
			st = g.onHold(doRaise, who)
		case 16:
			st = step{do: doInspect, limit: g.limit()}
		case 17:
			st = step{do: g.one(doList, doBreak), limit: g.limit()}
		case 18:
			st = step{do: g.one(doListen, doListen, doStop)}
		case 19:
			st = step{do: doCancel}
		case 20:
			st = pause(g.k.ttl / time.Duration(4+g.IntN(20)))
		case 21:
			who = g.IntN(2)
			st = step{do: doFault}
			if g.chance(60) && faulty {
				st.fault = faults[g.IntN(len(faults))]
			}
		}
		if (st.do == doAcquire || st.do == doWait) && (faulty && who < 2 || st.limit != whole) {
			st.ttl = g.ttl()
		}
		st.who, st.name = who, name
		if g.chance(10) {
			st.old = 1
		}
		g.add(st)
	}
}
