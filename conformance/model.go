package conformance

import (
	"errors"
	"slices"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
)

// The contract as a state machine, in a cheap form. For each attempt, three intervals follow from
// requests and answers:
//
//   - when its holder may act (held): from the answer that granted it until its validity ends, its own
//     release, or the report of its loss, whichever is first;
//   - when the service must keep it (kept): the same, and MinHold;
//   - when something of it may be in the service (may): from the first request to the last possible
//     arrival of one of its requests plus the time it asked for; or to the answer that nothing is left.
//
// Each rule compares an answer with these intervals of all attempts on its name. If several worlds
// explain the answers so far, "held" and "kept" are the shortest of all worlds, and "may" is the
// longest.
type judge struct {
	*history
	k     *kit
	rule  rule
	told  int // failures of the rule
	found []violation

	culprit    *call // the call that ended the hold of the next failure; nil: unknown
	miscounted int   // States with too few sharers

	about  map[*attempt][]*call
	held   map[*attempt]span  // when its holder may act
	kept   map[*attempt]span  // when the service must keep it, and others out, except fellow sharers
	may    map[*attempt]span  // when something of it may be in the service
	grants map[*attempt]*call // the call that informed the holder

	landed map[*attempt]time.Time // if dead holders must be watched: when the last request for it arrived
}

// judge examines a completed history.
func (k *kit) judge(h *history) *judge {
	j := &judge{history: h, k: k, about: map[*attempt][]*call{}, held: map[*attempt]span{},
		kept: map[*attempt]span{}, may: map[*attempt]span{}, grants: map[*attempt]*call{}, landed: map[*attempt]time.Time{}}
	byName := map[string][]*attempt{}
	for _, a := range h.attempts {
		byName[a.req.Name] = append(byName[a.req.Name], a)
	}
	for _, c := range h.calls {
		switch {
		case c.op == opDelete, c.op == opBreak, c.op == opServers:
			for name, all := range byName {
				if c.op == opServers || name == c.name {
					for _, a := range all {
						j.about[a] = append(j.about[a], c)
					}
				}
			}
		case c.of != nil:
			j.about[c.of] = append(j.about[c.of], c)
		}
		if c.next != nil {
			j.about[c.next] = append(j.about[c.next], c)
		}
	}
	for _, a := range h.attempts {
		j.may[a] = j.mayOf(a)
		for _, c := range j.about[a] { // a session starts anew with its server, even one that its client gave up
			if may := j.may[a]; c.op == opServers && k.sessions && !c.ended.IsZero() && may.touches(c.span()) && !may.to.IsZero() {
				j.may[a] = span{may.from, latest(may.to, c.ended.Add(k.life(a)+a.req.TTL))}
			}
		}
	}
	j.abandoned()
	for _, a := range h.attempts {
		j.held[a], j.kept[a] = j.heldOf(a)
	}
	return j
}

// watched reports whether a dead holder's lock is free when a client has watched it.
func (k *kit) watched() bool { return k.g.DeadHolder == locker.RecoveryWatched && !k.sessions }

// watchedOut reports whether the client of a call had watched b for long enough that it has ended.
func (j *judge) watchedOut(b *attempt, c *call) bool {
	landed, ok := j.landed[b]
	return ok && slices.ContainsFunc(j.calls, func(d *call) bool {
		return d.op == opAcquire && d.who == c.who && d.name == c.name && refused(d.err) && !d.began.Before(landed) &&
			d.ended.Add(j.k.life(b)).Before(c.began)
	})
}

// kernel reports whether waiters are in a kernel's queue.
func (j *judge) kernel() bool { return j.k.g.Exclusion == locker.ExclusionKernel }

// abandoned: a place in a kernel's queue cannot be given up. A request that stopped waiting is granted
// when those before it have left, and releases at once.
func (j *judge) abandoned() {
	if !j.kernel() {
		return
	}
	gaveUp := func(a *attempt) bool {
		return a.req.Wait && j.firstGrant(a) == nil
	}
	for again := true; again; {
		again = false
		for _, a := range j.attempts {
			for _, b := range j.attempts {
				s, o := j.may[a], j.may[b]
				if gaveUp(a) && !gaveUp(b) && !s.to.IsZero() && apart(a, b) && o.touches(s) && !s.to.After(o.to) {
					j.may[a], again = span{s.from, o.to.Add(j.k.air)}, true
				}
			}
		}
	}
}

// apart reports whether a and b want one name and cannot hold it together.
func apart(a, b *attempt) bool {
	return a != b && a.req.Name == b.req.Name && !(a.req.Shared && b.req.Shared)
}

// survives reports whether a held lock outlasts that event.
func (j *judge) survives(c *call) bool {
	g := j.k.g
	switch server(c.who) {
	case byRestart:
		return g.SurvivesRestart
	case byFailover:
		return g.SurvivesFailover
	case byCrash, byHang:
		return g.ServerCrashes > 0
	}
	return g.SurvivesClockJump
}

func (j *judge) heldOf(a *attempt) (held, kept span) {
	var grant *call
	for _, c := range j.about[a] { // in the order in which they began
		if !c.granted(a) {
			continue
		}
		until := c.grant.Validity.Until()
		switch {
		case grant == nil && c.op != opRenew:
			held, grant = span{c.ended, until}, c
		case grant != nil && c.ended.Before(held.to):
			held.to = latest(held.to, until)
		}
	}
	if grant == nil {
		return span{}, span{}
	}
	j.grants[a] = grant
	kept = span{grant.ended, latest(held.to, j.keeps(a))}
	end := func(t time.Time, its bool) {
		held.to = earliest(held.to, t)
		if its || a.req.MinHold == 0 || !t.Before(grant.began.Add(a.req.MinHold)) {
			kept.to = earliest(kept.to, t)
		}
	}
	if c := j.closedAt(a.who); c != nil {
		end(c.began, false)
	}
	for _, c := range j.about[a] {
		switch {
		case c.op == opServers && !j.survives(c), c.op == opDelete:
			if !c.span().to.Before(grant.began) {
				end(c.began, true)
			}
		case c.op == opBreak:
			if j.mayBreak(c, a) {
				end(c.began, true)
			}
		case c.of != a:
		case c.op == opRelease, c.op == opPass, c.op == opUndo:
			end(c.began, true)
		case c.op == opKeep:
			held.to = earliest(held.to, c.began)
			kept.to = earliest(kept.to, latest(c.began, j.keeps(a)))
		case c.op == opLost:
			end(c.began, false)
		case errors.Is(c.err, locker.ErrLost) && !c.ended.IsZero() && c.op != opRaise:
			end(c.ended, !j.keptBefore(c))
		}
	}
	return held.orNone(), kept.orNone()
}

// mayBreak reports whether a Break may concern a.
func (j *judge) mayBreak(c *call, a *attempt) bool {
	if !j.maySee(c.seen, a) || errors.Is(c.err, errors.ErrUnsupported) {
		return false
	}
	return j.may[a].touches(c.seen.span()) || a.req.Shared && j.may[a].touches(c.span())
}

// maySee reports whether the holder that an Inspect has seen may be a, or a fellow sharer.
func (j *judge) maySee(c *call, a *attempt) bool {
	if c == nil || a.req.Name != c.name || !c.state.Held || a.req.Shared != (c.state.Sharers > 0) {
		return false
	}
	grant := j.firstGrant(a)
	if grant == nil || grant.span().touches(c.span()) { // its token may not be there yet
		return true
	}
	return c.state.Token == 0 || c.state.Token == grant.grant.Token || j.raisedTo(a, c.state.Token)
}

// firstGrant is the first call that granted a; nil: none.
func (j *judge) firstGrant(a *attempt) *call {
	for _, c := range j.about[a] {
		if c.granted(a) && c.op != opRenew {
			return c
		}
	}
	return nil
}

// keeps is until when, at least, the MinHold of the granted a keeps its lock.
func (j *judge) keeps(a *attempt) time.Time {
	return j.grants[a].began.Add(a.req.MinHold*49/50 - 2*time.Millisecond)
}

// keptBy is when, at the latest, the lock of an answered Release with a keep ends.
func (j *judge) keptBy(c *call) time.Time {
	return c.ended.Add(c.keep + c.of.req.MinHold/100 + j.k.g.MinHoldSlack + j.k.tol)
}

// keptBefore reports whether c may be a renewal of a lock already released and kept: the renewal finds
// it gone.
func (j *judge) keptBefore(c *call) bool {
	return c.op == opRenew && slices.ContainsFunc(j.about[c.of], func(d *call) bool {
		return d.op == opKeep && d.began.Before(c.ended)
	})
}

// keptSince is the first Release with a keep of a that was answered before a moment; nil: none.
func (j *judge) keptSince(a *attempt, before time.Time) *call {
	for _, c := range j.about[a] {
		if c.op == opKeep && c.err == nil && !c.ended.IsZero() && c.ended.Before(before) {
			return c
		}
	}
	return nil
}

// gives reports whether the request of a call may create or prolong a: if a name is one record, a late
// RaiseToken writes it anew.
func gives(a *attempt, c *call) bool {
	return c.of == a && (c.op == opAcquire || c.prolongs()) || c.next == a && c.op == opPass
}

func (c *call) prolongs() bool { return c.op == opRenew || c.op == opRaise }

// lands is until when the request of a call may reach the service and create or prolong a; zero: never.
func (j *judge) lands(a *attempt, c *call) time.Time {
	switch {
	case !gives(a, c), c.over && (c.err != nil && c.op == opAcquire && c.grant.Hold == nil):
		return time.Time{}
	case c.ended.IsZero():
		return far
	case refused(c.err) && c.grant.Hold == nil, errors.Is(c.err, locker.ErrLost),
		errors.Is(c.err, locker.ErrClosed) && c.grant.Hold == nil && j.closedBy(c.began, c.who),
		c.err == nil && c.op == opPass && c.grant.Hold == nil:
		return time.Time{}
	case c.err == nil:
		return c.ended
	case !c.prolongs() && c.grant.Hold == nil && !errors.Is(c.err, locker.ErrClosed): // the answer says that nothing can be left
		return time.Time{}
	}
	return j.underWay(c)
}

// underWay is until when the request of an unanswered call may be in flight.
func (j *judge) underWay(c *call) time.Time {
	return earliest(latest(c.span().to.Add(j.k.air), j.delayed(c, false)), far)
}

// delayed is when a held-back request of a call arrives, at some or all servers.
func (j *judge) delayed(c *call, some bool) (land time.Time) {
	for _, o := range j.outages {
		if o.who == c.who && o.some == some && o.span().touches(c.span()) && o.fault.delays() {
			land = latest(land, o.span().to.Add(j.k.air))
		}
	}
	return land
}

// life is how long a lasts, at most, after its last request has arrived.
func (k *kit) life(a *attempt) time.Duration {
	lasts := a.req.TTL + k.g.DeadHolderSlack
	if keep := a.req.MinHold; keep > 0 {
		lasts = max(lasts, keep+driver.Drift(keep)+max(k.g.DeadHolderSlack, k.g.MinHoldSlack))
	}
	return lasts + k.tol
}

func (j *judge) mayOf(a *attempt) (s span) {
	var land, sent time.Time // of requests that can create a; renewals only prolong it
	var renewed, copies time.Time
	var strays time.Time // votes of a repeated request, known only to its earlier Hold
	var denied span      // of requests that were finally refused
	there := false
	life := j.k.life(a)
	grantee := false
	for _, c := range j.about[a] {
		l := j.lands(a, c)
		if l.IsZero() {
			votes := j.k.g.Exclusion == locker.ExclusionQuorum // of a loser may stay for a moment
			if gives(a, c) && !c.prolongs() && !c.over && (c.err != nil || j.broke(c)) && (!refused(c.err) || j.broke(c) || votes) {
				denied = c.span() // it was there, and has ended
				if votes && !c.ended.IsZero() {
					denied.to = c.ended.Add(j.k.air)
				}
				if j.k.sessions && !refused(c.err) && j.broke(c) && !c.ended.IsZero() { // it ends with an abandoned session
					denied.to = c.ended.Add(life)
				}
			}
			continue
		}
		if !there {
			s.from, there = c.began, true
		}
		if c.op != opRaise {
			sent = latest(sent, c.span().to)
		}
		late := j.underWay(c)
		if !late.After(c.ended.Add(j.k.air)) { // else an overtaken copy comes after the answer
			late = time.Time{}
		}
		if c.prolongs() {
			renewed = latest(renewed, latest(l, late))
		} else {
			land, copies = latest(land, l), latest(copies, late)
			votes := call{who: c.who, began: c.ended, ended: c.ended.Add(j.k.air)}
			if j.k.g.Exclusion == locker.ExclusionQuorum && len(a.earlier) > 0 && j.broke(&votes) {
				strays = latest(strays, j.underWay(&votes))
			}
		}
		life = max(life, c.grant.Validity.TTL+j.k.g.DeadHolderSlack+j.k.tol)
		grantee = grantee || c.granted(a) && c.op != opRenew
	}
	if !there {
		return denied
	}
	renewed = latest(renewed, copies)
	if a.req.Wait && j.k.queue && !grantee { // its place in the queue may last as long
		life *= 2
	}
	s.to = far
	closed, cut := j.closedAt(a.who), j.cutOff(a.who)
	if closed != nil && closed.err == nil && !closed.ended.IsZero() && j.k.expires && !j.broke(closed) &&
		j.k.g.DeadHolder == locker.RecoveryAtOnce && !latest(land, renewed).After(closed.began) {
		life = max(a.req.MinHold, j.k.soon) + j.k.g.DeadHolderSlack + j.k.tol
		land, renewed = closed.ended, closed.ended
	}
	switch {
	case !j.k.expires || latest(land, renewed).Equal(far):
	case j.k.watched():
		j.landed[a] = latest(land, renewed)
	case !j.k.sessions:
		s.to = latest(land, renewed).Add(life)
	case closed != nil && closed.err == nil && !closed.ended.IsZero():
		s.to = latest(latest(land, renewed), closed.ended).Add(life)
	case !cut.IsZero():
		s.to = latest(latest(land, renewed), cut).Add(life)
	}
	for _, c := range j.about[a] {
		if c.op == opKeep && c.of == a && !errors.Is(c.err, locker.ErrLost) { // it counts from its execution
			late := call{ended: j.underWay(c), of: a, keep: c.keep}
			s.to = earliest(far, latest(s.to, j.keptBy(&late)))
		}
	}
	for _, c := range j.about[a] {
		if c.ended.IsZero() || gives(a, c) && c.of == a && !errors.Is(c.err, locker.ErrLost) {
			continue
		}
		arrived := !land.After(c.began)
		switch {
		case c.op == opServers:
		case c.op == opDelete, c.op == opBreak && c.err == nil && arrived && j.surelyBreaks(c, a):
			if arrived && grantee && !copies.After(c.began) {
				s.to = earliest(s.to, c.ended)
			}
		case c.of != a, strays.After(c.began):
		case c.op == opUndo && c.err == nil && closed != nil && closed.began.Before(c.ended): // its session ends with it
		case c.op == opUndo && c.err == nil: // nothing can arrive, or its time has passed
			if arrived || c.ended.Before(sent.Add(life-2*j.k.tol-j.k.g.DeadHolderSlack)) {
				s.to = earliest(s.to, c.ended)
			} else if !land.Equal(far) {
				s.to = earliest(s.to, latest(c.ended, land.Add(life)))
			}
		case c.op == opKeep && c.err == nil && arrived && grantee && !j.k.watched():
			s.to = earliest(s.to, j.keptBy(c))
		case !grantee: // only Undo says that nothing of it will arrive
		case lostFor(c.err) && c.op == opRenew && j.k.sessions: // its client gave it up, but the service may keep it
		case arrived && (c.err == nil && (c.op == opRelease || c.op == opPass) ||
			lostFor(c.err) && c.op != opUndo && c.op != opRaise && !j.keptBefore(c) && !copies.After(c.began)):
			to := c.ended
			switch {
			case c.op == opPass && c.yield && c.grant.Hold == nil:
				to = to.Add(250*time.Millisecond + j.k.air) // it may be kept for the next client
			case c.op == opKeep && j.k.sessions && !j.givenSince(a, c): // what keeps it can have outlived the session that held it
				to = j.keptBy(c)
			}
			s.to = earliest(s.to, to)
		}
	}
	return s
}

// givenSince reports whether another, that cannot hold it beside a, was granted the lock after a and before a call.
func (j *judge) givenSince(a *attempt, before *call) bool {
	its := j.firstGrant(a)
	return slices.ContainsFunc(j.attempts, func(b *attempt) bool {
		next := j.firstGrant(b)
		return apart(a, b) && next != nil && next.ended.After(its.ended) && next.ended.Before(before.began)
	})
}

// lostFor reports whether an error says that a hold is gone, and not its client.
func lostFor(err error) bool {
	return errors.Is(err, locker.ErrLost) && !errors.Is(err, locker.ErrClosed)
}

// surelyBreaks reports whether a successful Break has removed a.
func (j *judge) surelyBreaks(c *call, a *attempt) bool {
	grant := j.firstGrant(a)
	return grant != nil && j.maySee(c.seen, a) && grant.ended.Before(c.seen.began)
}

// closedAt is the first Close of a client; nil: none.
func (j *judge) closedAt(who string) *call {
	i := slices.IndexFunc(j.calls, func(c *call) bool { return c.op == opClose && c.who == who })
	if i < 0 {
		return nil
	}
	return j.calls[i]
}

// closedBy reports whether a client was closed at a moment.
func (j *judge) closedBy(at time.Time, who string) bool {
	c := j.closedAt(who)
	return c != nil && c.began.Before(at)
}

// cutOff is since when a client has been permanently cut off; zero: it is not.
func (j *judge) cutOff(who string) time.Time {
	for _, o := range j.outages {
		if o.who == who && o.to.IsZero() && o.fault.mutes() && !o.some {
			return o.sure
		}
	}
	return time.Time{}
}

// parted reports whether the client of a call could not reach some of the servers.
func (j *judge) parted(c *call) bool {
	return slices.ContainsFunc(j.outages, func(o *outage) bool {
		return o.some && o.who == c.who && o.span().touches(span{c.began, c.span().to.Add(j.k.air)})
	})
}

// rest is until when some servers that missed the end of a may still have something of it; zero: none.
func (j *judge) rest(a *attempt) (to time.Time) {
	if !slices.ContainsFunc(j.about[a], j.parted) {
		return time.Time{}
	}
	for _, c := range j.about[a] {
		if gives(a, c) {
			to = latest(to, earliest(latest(j.underWay(c), j.delayed(c, true)).Add(j.k.life(a)), far))
		} else if c.op == opUndo && c.err == nil && !c.ended.IsZero() {
			to = earliest(to, c.ended)
		}
	}
	return to
}

// spoilt reports whether too many servers may be useless to a call: some are unreachable, and others
// have a rest of an earlier attempt.
func (j *judge) spoilt(c *call) bool {
	s, out := c.span(), map[string]bool{}
	if c.of != nil && j.grants[c.of] != nil {
		s.from = earliest(s.from, j.grants[c.of].began)
	}
	if j.parted(c) {
		out[c.who] = true
	}
	for _, b := range j.attempts {
		ends := j.may[b].to // or when it is first given up
		for _, d := range j.about[b] {
			if d.op == opRelease || d.op == opKeep || d.op == opUndo {
				ends = earliest(ends, d.began)
			}
		}
		if b.req.Name == c.name && (span{ends, j.rest(b)}).orNone().touches(s) {
			for _, d := range j.about[b] {
				if j.parted(d) {
					out[d.who] = true
				}
			}
		}
	}
	return len(out) > 1
}

// gone reports whether certainly nothing of a is there now.
func (k *kit) gone(h *history, a *attempt) bool {
	s := k.judge(h.copy()).may[a]
	return s.to.Before(time.Now())
}

// well reports whether, during a call and shortly before, nothing was wrong with the service or the
// client's connection, except to some of the servers.
func (j *judge) well(c *call) bool {
	s := span{c.began.Add(-j.k.soon), c.span().to}
	for _, o := range j.outages {
		if o.who == c.who && s.touches(o.span()) && !o.some {
			return false
		}
	}
	for _, other := range j.calls {
		if other.op == opServers && s.touches(span{other.began, other.span().to.Add(j.k.soon)}) {
			return false
		}
	}
	return !j.closedBefore(c)
}

// closedBefore reports whether the client was closed before the call had ended.
func (j *judge) closedBefore(c *call) bool {
	closed := j.closedAt(c.who)
	return closed != nil && closed.began.Before(c.span().to)
}

// slowest is the longest time of a healthy call that did not wait.
func (j *judge) slowest() (d time.Duration) {
	for _, c := range j.calls {
		if c.op == opServers && server(c.who).takesSome() { // from then on, calls to some servers take long
			return d
		}
		waits := c.op == opAcquire && c.of.req.Wait || c.op == opServers || c.op == opLeftover || c.op == opDelete
		if !waits && !c.ended.IsZero() && j.well(c) && !j.broke(c) && !j.spoilt(c) {
			d = max(d, c.ended.Sub(c.began))
		}
	}
	return d
}
