package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
)

// rule is a sentence of the contract that holds for every history.
type rule struct {
	name     string
	sentence string
	judge    func(j *judge)
}

var rules = []rule{
	{"exclusion", "An exclusive holder is alone until its lease and its MinHold have ended.", (*judge).exclusion},
	{"refusal", "A refusal requires a possible holder, and claims no more than is true of it.", (*judge).refusals},
	{"remaining", "Remaining is how long the lock in the way lasts.", (*judge).remainders},
	{"outage", "An outage is reported as an outage, and not as held, lost or done.", (*judge).outagesTold},
	{"answer", "Every call returns an answer that the contract allows.", (*judge).answers},
	{"return", "A call returns when its context has ended.", (*judge).returns},
	{"hold", "A hold can be renewed and released, and a gone one is ErrLost.", (*judge).fits},
	{"lost", "Lost is called for a hold that is gone, and for no other.", (*judge).losses},
	{"token", "Tokens increase from holder to holder, and concurrent sharers have the same.", (*judge).tokens},
	{"validity", "Validity counts from before the request, and is the requested TTL, rounded up.", (*judge).validity},
	{"free", "A released, undone or expired lock is free.", (*judge).free},
	{"gate", "A waiting writer keeps new sharers out, as long as it waits.", (*judge).gates},
	{"state", "Inspect and List report what is there, and Break removes it.", (*judge).states},
	{"list", "List reports each held name with the prefix once, and no other.", (*judge).lists},
	{"wake", "A listening client is woken when the holder in its way has left.", (*judge).wakes},
	{"order", "Waiters get the lock in the order in which they began to wait.", (*judge).order},
	{"close", "Close ends what the backend has started, and nothing is granted afterwards.", (*judge).closes},
}

// violation is a broken promise.
type violation struct {
	rule rule
	seen string
	hint string
	told []string // the timeline
}

// tell reports a violation; scripts is how many scripts break the rule.
func (v violation) tell(scripts int) string {
	text := fmt.Sprintf("broken promise: %s (rule %s)\n  seen: %s", v.rule.sentence, v.rule.name, v.seen)
	if scripts > 1 {
		text += fmt.Sprintf(", and so in %d scripts", scripts)
	}
	if v.hint != "" {
		text += "\n  probable cause: " + v.hint
	}
	for _, line := range v.told {
		text += "\n    " + line
	}
	return text
}

const (
	timelineLines = 5  // the call, and the four before it
	longTimeline  = 80 // of one script that is played again
	mostOfRule    = 2  // failures of a rule that are reported per history
)

// broken reports what breaks the rule. The attempts that it names are witnesses: the report has the
// calls that granted and changed them.
func (j *judge) broken(c *call, hint, format string, args ...any) {
	if j.told++; j.told > mostOfRule {
		return
	}
	witness := map[*call]bool{j.culprit: true}
	j.culprit = nil
	for _, arg := range append(args, c.of) {
		if a, is := arg.(*attempt); is && a != nil {
			j.testify(a, c, witness)
		}
	}
	j.found = append(j.found, violation{j.rule, fmt.Sprintf(format, args...), hint, j.timelineOf(c, j.k.lines, witness)})
}

// testify adds the grant of an attempt, and the last calls before a call that may have changed it.
func (j *judge) testify(a *attempt, before *call, witness map[*call]bool) {
	changes := 2
	for _, c := range slices.Backward(j.about[a]) {
		switch {
		case c == before || c.began.After(before.span().to):
		case c.granted(a) && c.op != opRenew && c == j.firstGrant(a):
			witness[c] = true
		case changes > 0:
			witness[c] = true
			changes--
		}
	}
}

// judgeAll applies the rules.
func (k *kit) judgeAll(h *history) []violation {
	j := k.judge(h)
	for _, j.rule = range rules {
		j.told = 0
		j.rule.judge(j)
	}
	return j.found
}

func (j *judge) exclusion() {
	for _, first := range j.attempts {
		for _, next := range j.attempts {
			grant := j.grants[next]
			if grant == nil || !apart(first, next) || !j.kept[first].meets(j.held[next]) ||
				j.grants[first].ended.After(grant.ended) {
				continue
			}
			hint := j.whyTwo(first, grant)
			j.broken(grant, hint, "%v was granted the lock at %s, and %v has it from %s %s", next, j.at(grant.ended), first,
				j.at(j.grants[first].ended), j.until(j.kept[first].to))
		}
	}
}

// whyTwo is the probable cause of a grant while first holds.
func (j *judge) whyTwo(first *attempt, grant *call) string {
	last := j.grants[first] // what gave it its time
	for _, c := range j.about[first] {
		if c.granted(first) && c.began.Before(grant.ended) {
			last = c
		}
	}
	for _, c := range slices.Backward(j.calls) {
		ends := c.op == opRelease || c.op == opKeep || c.op == opUndo || c.op == opPass || c.op == opBreak
		if ends && c.name == first.req.Name && c.of != first && c.began.After(last.began) && c.began.Before(grant.ended) && c != grant {
			j.culprit = c
			return fmt.Sprintf("%s by %s, at %s, has removed another's lock: it does not compare the whole owner, or not in the "+
				"step that removes", c.op, c.who, j.at(c.began))
		}
	}
	had, asked := grant.ended.Sub(last.began), first.req.TTL
	switch {
	case first.req.MinHold > asked && grant.ended.After(j.held[first].to):
		return "MinHold is not kept: it is sent in the wrong unit, or a renewal replaced it by its TTL"
	case last.op == opRenew:
		return "the renewal ended or shortened the lock in the service, or did not prolong it: it sends the wrong unit, or none"
	case had < asked/10:
		return "it does not check whether the lock is held, or not in the step that takes it"
	case had > asked*9/10:
		return "the lock ends before its holder's validity, which counts from the reply, or is rounded up"
	}
	return "the service keeps the lock for less than the requested time: it is sent in the wrong unit, or compared by another clock"
}

// inTheWay is the longest time for which a call can be refused, and whether it can be refused at all.
func (j *judge) inTheWay(c *call) (remains time.Duration, somebody bool) {
	for _, b := range j.attempts {
		if b == c.of || b.req.Name != c.name {
			continue
		}
		gaveUp := func(d *call) bool { // it may still work on the name, as a transaction that checks whether b holds it
			return d.asks() && !d.certain() && span{d.began, j.underWay(d)}.touches(c.span())
		}
		s := j.may[b]
		if j.k.g.Exclusion == locker.ExclusionQuorum && !s.to.IsZero() { // the nodes beyond the quorum come later
			s.to = s.to.Add(j.k.air)
		}
		if apart(b, c.of) && (s.touches(c.span()) && !s.to.IsZero() && !j.watchedOut(b, c) ||
			slices.ContainsFunc(j.about[b], gaveUp)) {
			somebody = true
			lasts := j.k.life(b)
			if kept := j.keptSince(b, c.began); kept != nil && !j.k.watched() {
				lasts = j.keptBy(kept).Sub(c.began)
			}
			remains = max(remains, s.to.Sub(c.began), lasts)
		}
		if apart(b, c.of) && slices.ContainsFunc(j.about[b], func(d *call) bool {
			return d.of == b && d.asks() && d.span().touches(c.span())
		}) {
			somebody = true // concurrent requests may block each other, as transactions do
			remains = max(remains, j.k.soon)
		}
		if j.kernel() && b.req.Shared && b.req.Wait && j.first(b).span().touches(c.span()) {
			somebody = true // sharers in a kernel's queue come in one after the other
		}
		if c.of.req.Shared && !b.req.Shared && b.req.Wait && j.gate(b).touches(c.span()) {
			somebody = true
			remains = max(remains, time.Second+j.k.tol)
		}
	}
	return remains, somebody
}

func (j *judge) refusals() {
	for _, c := range j.calls {
		if c.op != opAcquire || c.ended.IsZero() || !errors.Is(c.err, locker.ErrHeld) {
			continue
		}
		remains, somebody := j.inTheWay(c)
		he := c.refusal()
		switch {
		case j.grants[c.of] != nil && j.grants[c.of].ended.Before(c.began) && j.surely(c.of, c):
			j.broken(c, "a request that finds its own owner has been granted the lock", "%v, which holds, asked again, and was refused", c.of)
		case !somebody && !j.spoilt(c):
			j.broken(c, "something of an earlier attempt is left, two names are one lock, or the TTL is in the wrong unit",
				"%v was refused, and nobody may hold %.60q", c.of, c.name)
		case he != nil && he.Remaining > remains && !j.spoilt(c):
			j.broken(c, "it is sent in the wrong unit, or belongs to another lock",
				"%v was told that the lock lasts for %v, and it lasts for %v at most", c.of, he.Remaining, remains)
		case he != nil && (he.AskWithin > time.Second || he.AskWithin < 0):
			j.broken(c, "the note ends within a second", "%v was told to ask again within %v", c.of, he.AskWithin)
		}
	}
	beside := map[string]int{}
	for _, c := range j.calls {
		if c.op != opAcquire || c.of.req.Wait || !refused(c.err) || !j.well(c) || j.broke(c) || !c.ctxEnded.IsZero() {
			continue
		}
		if c.grant.Hold == nil {
			beside[c.who] = 0
		} else if beside[c.who]++; beside[c.who] == 3 { // a repeated request may do so once
			j.broken(c, "a refusal is certain", "the refusal of %v came with a Hold, three times in a row", c.of)
		}
	}
}

// remainders judges the lower bound of a refusal's Remaining.
func (j *judge) remainders() {
	once := 0 // a busy service may ask for patience once
	for _, c := range j.calls {
		he := c.refusal()
		if c.op != opAcquire || c.ended.IsZero() || he == nil || he.Remaining <= 0 {
			continue
		}
		for _, b := range j.attempts {
			until := j.toldUntil(b, c.began)
			if !apart(b, c.of) || !j.kept[b].covers(c.span()) || until.IsZero() {
				continue
			}
			if short := until.Sub(c.ended) - he.Remaining; short > j.k.tol && !j.amid(c) && !j.spoilt(c) &&
				!slices.ContainsFunc(j.about[b], j.parted) { // a server that misses its renewals says less
				if once++; once < 3 && !j.virtual {
					continue
				}
				j.broken(c, "it is sent in the wrong unit, or belongs to another lock",
					"%v was told that the lock lasts for %v, and %v has it for %v", c.of, he.Remaining, b,
					until.Sub(c.ended))
			}
		}
	}
}

// amid reports whether another request for the name was in flight during a call: it may have been in
// the way.
func (j *judge) amid(c *call) bool {
	return slices.ContainsFunc(j.calls, func(d *call) bool {
		return d != c && d.name == c.name && d.asks() && span{d.began, j.arrives(d)}.touches(c.span())
	})
}

// toldUntil is the end of the latest validity that the holder of a knew at a moment.
func (j *judge) toldUntil(a *attempt, before time.Time) (until time.Time) {
	for _, c := range j.about[a] {
		if c.granted(a) && !c.ended.After(before) && c.grant.Validity.TTL != 0 {
			until = latest(until, c.grant.Validity.Until())
		}
	}
	for _, c := range j.about[a] {
		if c.op == opKeep && j.grants[a] != nil {
			until = earliest(until, j.keeps(a))
		}
	}
	return until
}

func (j *judge) outagesTold() {
	for _, c := range j.calls {
		for _, o := range j.outages {
			if o.who != c.who || o.some || !o.fault.mutes() || c.ended.IsZero() || !c.asks() || c.began.Before(o.sure) ||
				!o.to.IsZero() && !c.ended.Before(o.to) {
				continue
			}
			const hint = "a timeout or a broken connection is taken for an answer"
			switch {
			case j.closedBefore(c), c.over && ofContext(c.err):
			case c.op == opRenew && c.err == nil && j.knownBefore(c, o): // known from a session
			case c.op == opRaise && c.err == nil && j.knowsToken(c):
			case c.op == opUndo && c.err == nil && (j.grants[c.of] == nil || j.lostBefore(c)): // nothing was sent, or is left
			case c.op == opUndo && c.err == nil && j.toldUnasked(c, o):
			case c.op == opUndo && c.err == nil && c.ended.Sub(j.sent(c.of, c)) >= max(c.of.req.TTL, c.of.req.MinHold)-j.k.tol:
			case c.err == nil:
				j.broken(c, "it does not wait for the answer", "%s succeeded, and no answer can have come since %s; it holds since %s",
					c.op, j.at(o.from), j.at(c.grant.Validity.Since))
			case errors.Is(c.err, locker.ErrHeld) && !(c.of.req.Wait && ofContext(c.err)):
				j.broken(c, hint, "%s without an answer says that the lock is held: %v", c.op, oneLine(c.err))
			case errors.Is(c.err, locker.ErrLost) && c.op != opUndo && !j.lostBefore(c, opRelease, opKeep, opUndo, opPass):
				j.broken(c, hint, "%s without an answer says that the hold is lost: %v", c.op, oneLine(c.err))
			case !errors.Is(c.err, locker.ErrUnavailable) && !errors.Is(c.err, locker.ErrLost) &&
				(!ofContext(c.err) || c.ctxEnded.IsZero()) && c.op != opUndo:
				j.broken(c, "errors of the driver are returned as they are",
					"%s without an answer matches neither ErrUnavailable nor the end of its context: %v", c.op, oneLine(c.err))
			}
		}
	}
}

// knownBefore reports whether what a renewal returned was known before an outage.
func (j *judge) knownBefore(c *call, o *outage) bool {
	grant := j.grants[c.of]
	return grant != nil && !c.grant.Validity.Until().After(o.from.Add(grant.grant.Validity.TTL))
}

// lostBefore reports whether the backend knew before the end of a call that the hold was gone: it
// reported it, or was asked to end the hold.
func (j *judge) lostBefore(c *call, ends ...op) bool {
	return slices.ContainsFunc(j.about[c.of], func(d *call) bool {
		gone := d.op == opLost || slices.Contains(ends, d.op) || errors.Is(d.err, locker.ErrLost)
		return d != c && d.of == c.of && gone && d.began.Before(c.ended)
	})
}

// toldUnasked reports whether the service may have told a session, without a request, that what a call ends is gone:
// replies get through, somebody else removed it since it was granted, and nothing that could bring it back is under way.
func (j *judge) toldUnasked(c *call, o *outage) bool {
	grant := j.grants[c.of]
	if !j.k.sessions || o.fault != held && o.fault != lost || grant == nil || j.sent(c.of, c).After(o.from) {
		return false
	}
	return slices.ContainsFunc(j.about[c.of], func(d *call) bool {
		return (d.op == opDelete || d.op == opBreak && j.mayBreak(d, c.of)) && d.err == nil && d.who != c.who &&
			!d.span().to.Before(grant.began) && d.began.Before(c.ended)
	})
}

// sent is when the last request before that call that may have granted or prolonged a was answered or
// given up.
func (j *judge) sent(a *attempt, before *call) (t time.Time) {
	for _, c := range j.about[a] {
		if gives(a, c) && c.op != opRaise && c.began.Before(before.began) {
			t = latest(t, c.span().to)
		}
	}
	return t
}

func (j *judge) answers() {
	for _, c := range j.calls {
		switch c.op {
		case opInspect, opList, opBreak, opNotify, opLeave:
			gaveUp := c.op == opLeave && c.ended.Sub(c.began) > 100*time.Millisecond // a place is not worth more
			nobody := c.op == opBreak && c.seen != nil && !c.seen.state.Held         // the engine never passes that
			failed := c.err != nil && !c.ended.IsZero() && !errors.Is(c.err, errors.ErrUnsupported) && !gaveUp && !nobody
			if failed && j.well(c) && c.ctxEnded.IsZero() {
				j.broken(c, "", "%s failed although nothing was wrong: %v", c.op, oneLine(c.err))
			}
		}
		if c.ended.IsZero() || !c.asks() {
			continue
		}
		if c.err != nil && strings.HasPrefix(c.err.Error(), "panic: ") {
			j.broken(c, "", "%s: %v", c.op, c.err)
			continue
		}
		waits := c.op == opAcquire && c.of.req.Wait && j.k.queue
		over := !c.ctxEnded.IsZero() && !c.ctxEnded.After(c.ended)
		switch {
		case !j.well(c) || errors.Is(c.err, locker.ErrClosed):
		case errors.Is(c.err, locker.ErrUnavailable) && j.spoilt(c):
		case c.certain():
			if over && waits && c.err != nil && !errors.Is(c.err, locker.ErrLost) && c.ended.Sub(c.began) > j.k.soon {
				j.broken(c, "wrap the context's error", "%v waited until its context ended, and its error does not say so: %v",
					c.of, oneLine(c.err))
			}
		case over && j.hidesContext(c):
			j.broken(c, "wrap the error of the context, and no other",
				"the context of %s ended with %v, and its error does not say so: %v", c.op, j.ctxErr(c), oneLine(c.err))
		case over:
			if waits && j.surelyRefused(c) && !errors.Is(c.err, locker.ErrHeld) && !c.over {
				j.broken(c, "the error of an ended wait says what is known of the lock",
					"%v waited while the lock was held, and its error does not match ErrHeld: %v", c.of, oneLine(c.err))
			}
		case errors.Is(c.err, locker.ErrUnavailable) && !c.deadline.IsZero() &&
			c.deadline.Sub(c.ended) < j.k.air/10: // a driver may give up slightly early
		case errors.Is(c.err, locker.ErrUnavailable) && c.op == opAcquire && !waits && !j.virtual &&
			c.ended.Sub(c.began) >= c.of.req.TTL-driver.Drift(c.of.req.TTL): // no grant would have been valid
		case c.op == opUndo: // it is called again
		case waits && j.removedDuring(c): // its place may be removed too
		case c.op != opAcquire && j.grants[c.of] != nil && c.began.After(j.toldUntil(c.of, c.began)): // its lease has ended
		case c.op == opRaise && errors.Is(c.err, errors.ErrUnsupported):
		case c.op == opRaise && errors.Is(c.err, locker.ErrInvalid) && c.token >= highToken:
		case c.op != opAcquire && j.gaveUpBefore(c): // the service may refuse a void request
		default:
			j.broken(c, "", "%s failed although nothing was wrong: %v", c.op, oneLine(c.err))
		}
		switch {
		case waits && refused(c.err) && !over && !j.closedBefore(c):
			j.broken(c, "Queue is claimed, and there is none", "%v did not wait, although the backend says that it has a queue", c.of)
		case c.op == opAcquire && c.err == nil && c.grant.Hold == nil:
			j.broken(c, "", "%v was granted without a Hold", c.of)
		case c.op == opPass && c.err == nil && c.grant.Hold == nil && !c.yield && j.well(c): // or a copy may have done it
			j.broken(c, "it yields, and was not asked to", "Pass of %v succeeded, and gave its caller nothing", c.of)
		case c.over && c.op == opAcquire && c.err == nil:
			j.broken(c, "Acquire does not check its context", "%v was granted under a context that had ended", c.of)
		case c.op == opAcquire && !c.of.req.Wait && refused(c.err) && j.well(c) && c.ended.Sub(c.began) > j.k.slow:
			j.broken(c, "without Wait, Acquire does not wait", "the refusal of %v took %v", c.of, c.ended.Sub(c.began))
		case waits && c.queued.IsZero() && j.well(c) && j.surelyRefused(c) && c.span().to.Sub(c.began) > j.k.soon:
			j.broken(c, "Queued is not called", "%v waited in the queue, and was not told that others are before it", c.of)
		}
	}
}

// removedDuring reports whether an operator removed something of the name meanwhile: it may belong to
// an attempt whose grant is just being reported.
func (j *judge) removedDuring(c *call) bool {
	return slices.ContainsFunc(j.calls, func(d *call) bool {
		return (d.op == opDelete || d.op == opBreak) && d.name == c.name && span{d.began, j.arrives(d)}.touches(c.span())
	})
}

// deleted reports whether a may have been deleted behind the backend's back.
func (j *judge) deleted(a *attempt) bool {
	return slices.ContainsFunc(j.about[a], func(d *call) bool { return d.op == opDelete })
}

// hidesContext reports whether a call's context has ended and its error does not say so.
func (j *judge) hidesContext(c *call) bool {
	if c.op == opUndo { // it is called again
		return false
	}
	early := errors.Is(c.err, locker.ErrUnavailable) && c.ended.Sub(c.ctxEnded) < j.k.air && c.op != opAcquire
	return !early && !errors.Is(c.err, j.ctxErr(c))
}

// ctxErr is the error of a call's context.
func (j *judge) ctxErr(c *call) error {
	if !c.deadline.IsZero() && !c.ctxEnded.Before(c.deadline) {
		return context.DeadlineExceeded
	}
	return context.Canceled
}

// surelyRefused reports whether a holder was in the way of a call from well before its context ended.
func (j *judge) surelyRefused(c *call) bool {
	to := c.span().to
	if !c.ctxEnded.IsZero() {
		to = earliest(to, c.ctxEnded)
	}
	enough := j.k.soon // for the service to say so
	if j.virtual {
		enough = j.k.air
	}
	return to.Sub(c.began) >= enough && slices.ContainsFunc(j.attempts, func(b *attempt) bool {
		return apart(b, c.of) && j.kept[b].covers(span{c.began, to})
	})
}

// gaveUpBefore reports whether an earlier call about the attempt was given up.
func (j *judge) gaveUpBefore(c *call) bool {
	return slices.ContainsFunc(j.about[c.of], func(d *call) bool {
		return d != c && d.asks() && d.began.Before(c.span().to) && !d.certain() || d.op == opUndo && d.began.Before(c.span().to)
	})
}

func (j *judge) returns() {
	for _, c := range j.calls {
		bound := j.k.soon + j.k.air
		if j.k.prompt && c.asks() && c.op != opRaise && c.op != opUndo {
			bound = j.k.promptly
		}
		const hint = "it does not watch its context, or waits for the network after its end"
		switch {
		case c.op == opStop && c.span().to.Sub(c.began) > j.k.soon:
			j.broken(c, "stop waits for the service", "the stop of Notify took %v", c.span().to.Sub(c.began))
		case c.endless && c.span().to.Sub(c.began) > j.k.patience:
			j.broken(c, "the driver has no timeout of its own, or the backend does not set it",
				"%s under a context that never ends took %v: a request without a timeout", c.op, c.span().to.Sub(c.began))
		case c.op == opClose || c.ctxEnded.IsZero():
		case c.ended.IsZero():
			j.broken(c, hint, "%s has not returned after its context ended", c.op)
		case c.ended.Sub(latest(c.ctxEnded, c.began)) > bound:
			j.broken(c, hint, "%s returned %v after its context ended", c.op, c.ended.Sub(c.ctxEnded))
		}
	}
}

// surely reports whether a was held from before a call began until after it ended, with nothing in
// progress that ends it.
func (j *judge) surely(a *attempt, c *call) bool {
	if !j.held[a].covers(c.span()) || j.grants[a] == nil || c.ended.IsZero() {
		return false
	}
	return !slices.ContainsFunc(j.about[a], func(d *call) bool {
		ends := d.of == a && (d.op == opRelease || d.op == opKeep || d.op == opUndo || d.op == opPass)
		return d != c && ends && !d.began.After(c.ended)
	})
}

func (j *judge) fits() {
	for _, c := range j.calls {
		if c.of == nil || c.ended.IsZero() || c.over || j.closedBefore(c) {
			continue
		}
		s := j.may[c.of]
		switch {
		case !c.asks() || c.op == opAcquire || c.op == opUndo:
		case errors.Is(c.err, locker.ErrLost) && j.heldBut(c).covers(c.span()): // its own end does not count
			j.broken(c, "the key was not found: another owner value, a TTL that is too short, a name that is "+
				"encoded in two ways; or check and change are two steps",
				"%s of %v, which was held, says that it is lost: %v", c.op, c.of, oneLine(c.err))
		case c.op == opRaise && j.knowsToken(c): // it need not ask
		case (c.op == opRenew || c.op == opRaise) && c.err == nil && j.keptSince(c.of, c.began) != nil:
			j.broken(c, "a lock that MinHold keeps after its Release has no holder",
				"%s of %v, which was released, succeeded", c.op, c.of)
		case (c.op == opRelease || c.op == opPass) && (j.gaveUpBefore(c) || !j.well(c) || c.ended.Sub(c.began) > j.k.air):
			// An earlier call may have done it, or the first copy of a repeated request.
		case c.op == opRelease && j.k.g.Exclusion == locker.ExclusionQuorum && j.spoilt(c):
			// It missed some servers, and what ended the hold missed others: too few servers are left
			// to tell that from an existing hold.
		case c.err == nil && j.grants[c.of] != nil && s.to.Before(c.began) && j.endedBy(c):
			j.broken(c, "it does not check whether the hold is there",
				"%s of %v, which was gone at %s, succeeded", c.op, c.of, j.at(s.to))
		}
	}
}

// knowsToken reports whether a hold has, or has asked for, a token no lower than that of a call.
func (j *judge) knowsToken(c *call) bool {
	return slices.ContainsFunc(j.about[c.of], func(d *call) bool {
		asked := d.op == opRaise && d.token >= c.token && !errors.Is(d.err, locker.ErrInvalid)
		return d != c && d.began.Before(c.began) && (asked || d.grant.Token >= c.token)
	})
}

// heldBut is when the holder may act, apart from the effect of the call itself.
func (j *judge) heldBut(c *call) span {
	others := slices.DeleteFunc(slices.Clone(j.about[c.of]), func(d *call) bool { return d == c })
	if slices.ContainsFunc(others, func(d *call) bool {
		ends := d.op == opRelease || d.op == opKeep || d.op == opUndo || d.op == opPass && d.of == c.of
		return ends && !d.began.After(c.ended)
	}) {
		return span{}
	}
	without := *j
	without.about = map[*attempt][]*call{c.of: others}
	without.grants = map[*attempt]*call{}
	held, _ := without.heldOf(c.of)
	return held
}

// endedBy reports whether a hold was certainly ended before a call, and not merely expired: the row of
// an expired hold may still be there.
func (j *judge) endedBy(c *call) bool {
	if j.k.sessions && c.op == opRenew { // its watch reports it, unless it is cut off
		soon := slices.ContainsFunc(j.about[c.of], func(d *call) bool {
			return (d.op == opDelete || d.op == opBreak) && d.began.Before(c.ended) && c.began.Sub(d.span().to) < j.k.soon
		})
		if soon || len(c.of.earlier) > 0 || // if it has asked again, its watch informs the Hold that set it last
			!j.well(c) || !c.ctxEnded.IsZero() && !j.lostBefore(c) { // it has no answer, but knows its session
			return false
		}
	}
	if c.op == opRenew || c.op == opPass || c.op == opRaise {
		for _, b := range j.attempts {
			if apart(b, c.of) && j.grants[b] != nil && j.grants[b].began.After(j.may[c.of].to) && j.grants[b].ended.Before(c.began) {
				return true
			}
		}
	}
	return slices.ContainsFunc(j.about[c.of], func(d *call) bool {
		ended := d.of == c.of && (d.err == nil && (d.op == opRelease || d.op == opUndo || d.op == opPass) ||
			errors.Is(d.err, locker.ErrLost) && !j.keptBefore(d)) || (d.op == opDelete || d.op == opBreak) && d.err == nil
		return d != c && ended && !d.ended.IsZero() && d.ended.Before(c.began) && !j.may[c.of].to.Before(d.began)
	})
}

func (j *judge) losses() {
	for _, c := range j.calls {
		if c.op == opLost && !j.closedBefore(c) && j.heldBut(c).covers(c.span()) &&
			!slices.ContainsFunc(j.about[c.of], func(d *call) bool { return d.op == opLost && d.began.Before(c.began) }) {
			j.broken(c, "", "Lost was called for %v, which is held", c.of)
		}
		if (c.op != opBreak && c.op != opDelete) || c.err != nil || c.ended.IsZero() {
			continue
		}
		for _, a := range j.attempts {
			soon := call{who: a.who, began: c.began, ended: c.ended.Add(j.k.soon)}
			renewed, told, quiet := false, false, true
			for _, d := range j.about[a] {
				renewed = renewed || d.op == opRenew && d.err == nil && d.span().to.Before(c.began)
				told = told || d.op == opLost && d.span().touches(soon.span())
				quiet = quiet && (d == c || d.op == opLost || !d.span().touches(soon.span()))
			}
			if a.req.Name == c.name && renewed && quiet && len(a.earlier) == 0 && j.held[a].touches(span{c.began, c.began}) &&
				(c.op == opDelete || j.surelyBreaks(c, a)) && j.well(&soon) && j.k.keepsBack("Lost after "+string(c.op), told) {
				j.broken(c, "", "Lost was not called for %v, as it was for others whose lock was removed", a)
			}
		}
	}
}

func (j *judge) tokens() {
	g := j.k.g
	for _, a := range j.attempts {
		first := j.grants[a]
		if first == nil {
			continue
		}
		claimed := g.Fencing != locker.FencingNone && (!a.req.Shared || g.Shared == locker.SharingWithTokens)
		token := first.grant.Token
		switch {
		case claimed && token == 0:
			j.broken(first, "", "%v has no token, and the Guarantees say %v, shared %v", a, g.Fencing, g.Shared)
		case !claimed && token != 0:
			j.broken(first, "without a promise there must be no token",
				"%v has token %d, and the Guarantees say %v, shared %v", a, token, g.Fencing, g.Shared)
		case token > locker.MaxToken:
			j.broken(first, "", "%v has token %d, which is above MaxToken", a, token)
		}
		for _, c := range j.about[a] {
			if c.granted(a) && c.op == opAcquire && c.grant.Token != token && c != first && c.ended.Before(j.toldUntil(a, c.began)) {
				j.broken(c, "a request that finds its own owner has been granted the lock",
					"%v asked again, and has token %d instead of %d", a, c.grant.Token, token)
			}
			if c.op == opRaise && c.err == nil && !c.ended.IsZero() && c.of == a && claimed {
				j.raised(c)
			}
		}
		for _, b := range j.attempts {
			if b != a && claimed && a.req.Name == b.req.Name && j.grants[b] != nil && j.grants[b].grant.Token != 0 {
				j.twoTokens(a, b)
			}
		}
	}
}

// raised judges the tokens granted after RaiseToken.
func (j *judge) raised(c *call) {
	for _, b := range j.attempts {
		grant := j.grants[b]
		if grant != nil && b.req.Name == c.name && grant.began.After(c.ended) && grant.grant.Token != 0 &&
			grant.grant.Token <= c.token && j.keepsTokens(c.began, grant.ended) && j.alone(c.ended, b) {
			j.broken(grant, "RaiseToken does not last", "%v has token %d, and RaiseToken had passed %d before", b,
				grant.grant.Token, c.token)
		}
	}
}

// alone reports whether b is not a sharer together with those of a moment.
func (j *judge) alone(at time.Time, b *attempt) bool {
	return !b.req.Shared || !slices.ContainsFunc(j.attempts, func(a *attempt) bool {
		return a.req.Shared && a.req.Name == b.req.Name && !j.may[a].from.After(at) && j.may[a].to.After(at)
	})
}

// keepsTokens reports whether the service has kept its data between two moments.
func (j *judge) keepsTokens(from, to time.Time) bool {
	kept := j.k.g.Fencing >= locker.FencingUnlessRewind
	return !slices.ContainsFunc(j.calls, func(c *call) bool {
		lost := c.op == opServers && !j.survives(c) && !(kept && server(c.who) != byFailover) || c.op == opDelete && !kept
		return lost && c.span().touches(span{from, to})
	})
}

// twoTokens compares the tokens of a and of b, which may have come later.
func (j *judge) twoTokens(a, b *attempt) {
	first, other := j.grants[a], j.grants[b]
	token, next := first.grant.Token, other.grant.Token
	together, over := a.req.Shared && b.req.Shared, !j.held[a].to.After(j.held[b].from) && !j.held[a].to.IsZero()
	switch {
	case !j.keepsTokens(first.began, other.span().to):
	case together && j.held[a].meets(j.held[b]):
		if next != token {
			j.broken(other, "concurrent sharers have the token of their generation",
				"%v has token %d, and %v alongside it %d", a, token, b, next)
		}
	case (over || first.ended.Before(other.began)) && (next < token || next == token && !together):
		j.broken(other, "tokens come from the service, in the step that grants", "%v has token %d, and %v after it %d", a, token, b, next)
	case together && next == token && j.may[a].to.Before(other.began) && !j.bridged(a, b):
		j.broken(other, "a generation of sharers has a token of its own",
			"%v has token %d, and so has %v, which came when all sharers had left", a, token, b)
	}
}

// bridged reports whether another sharer may have been there between a and b.
func (j *judge) bridged(a, b *attempt) bool {
	return slices.ContainsFunc(j.attempts, func(c *attempt) bool {
		s := j.may[c]
		return c != a && c != b && c.req.Name == a.req.Name && c.req.Shared && s.from.Before(j.grants[b].ended) &&
			s.to.After(j.grants[a].began) && !s.to.IsZero()
	})
}

func (j *judge) validity() {
	for _, a := range j.attempts {
		for _, c := range j.about[a] {
			if !c.granted(a) {
				continue
			}
			v := c.grant.Validity
			answered := c.ended
			for _, o := range j.outages { // a delayed reply
				if o.who == c.who && !o.some && (o.fault == replyLate || o.fault == held) && o.span().meets(c.span()) &&
					c.ended.After(o.span().to) && !o.from.After(c.began.Add(j.k.air)) {
					answered = earliest(answered, o.span().to)
				}
			}
			switch {
			case v.Since.After(c.ended):
				j.broken(c, "", "the validity of %v begins in the future", a)
			case v.Since.After(answered) && !(a.req.Wait && c.op == opAcquire) && !j.k.sessions &&
				c.ended.Sub(v.Since) < min(j.k.usual/4, 50*time.Microsecond): // or it was sent after another request
				j.broken(c, "take the time before the request is sent",
					"no answer to %v can have come before %s, and its validity begins %v later", a, j.at(answered),
					v.Since.Sub(answered))
			case j.virtual && !a.req.Wait && c.ended.Sub(c.began) > 50*time.Microsecond && c.ended.Sub(v.Since) < 2*time.Microsecond:
				j.broken(c, "take the time before the request is sent", "the validity of %v begins when the answer came", a)
			case v.TTL == 0:
				if j.k.g.Scope >= locker.ScopeNetwork || j.k.g.DeadHolder == locker.RecoveryAfterTTL || j.k.watched() {
					j.broken(c, "", "%v has no deadline, and a dead holder's lock is claimed to be free %v", a, j.k.g.DeadHolder)
				}
			case v.TTL < a.req.TTL:
				j.broken(c, "a TTL is rounded up, never down", "%v asked for %v, and was granted %v", a, a.req.TTL, v.TTL)
			case v.TTL > (max(a.req.TTL, j.k.g.MinTTL)+time.Second-1).Truncate(time.Second) && !j.k.sessions:
				j.broken(c, "return what the service keeps, not what a holder may assume", "%v asked for %v, and was granted %v",
					a, a.req.TTL, v.TTL)
			case v.Drift < 0 || v.Drift >= v.TTL:
				j.broken(c, "", "%v has a drift of %v", a, v.Drift)
			case c.op == opRenew && j.well(c) && v.Since.Before(c.began.Add(-j.stale(a))):
				j.broken(c, "return the validity of the renewal", "Renew did not move the end of %v", a)
			}
		}
	}
}

// stale is how old the validity returned by a renewal can be.
func (j *judge) stale(a *attempt) time.Duration {
	if j.k.sessions {
		return a.req.TTL/2 + j.k.tol
	}
	return j.k.tol
}

func (j *judge) free() {
	for _, c := range j.calls {
		switch {
		case c.op == opLeftover && c.of != nil:
			anothers := slices.ContainsFunc(j.attempts, func(b *attempt) bool {
				may := span{j.may[b].from, latest(j.may[b].to, j.rest(b)).Add(j.k.air)} // some servers learn of its end later
				return b != c.of && b.req.Name == c.name && !j.may[b].to.IsZero() && may.touches(c.span())
			})
			timeIsOver := j.sent(c.of, c).Add(max(c.of.req.TTL, c.of.req.MinHold) - j.k.tol)
			if len(c.left) > 0 && !anothers && c.ended.Before(timeIsOver) {
				j.broken(c, "removed on a quorum is not removed on all servers", "%v was undone, and there is still %v", c.of, c.left)
			}
		case c.op == opLeftover && c.who == "harness":
			j.broken(c, "", "nothing of %.60q should be left in the service, but %v is", c.name, c.left)
		case c.op == opLeftover:
			j.broken(c, "", "%.60q did not become free", c.name)
		case c.op == opAcquire && c.of.req.Wait && (j.k.queue || j.kernel()) && !c.over && j.well(c):
			bound := j.k.soon + j.k.tol
			if c.granted(c.of) && j.virtual { // in real time, it may wait for a busy machine
				bound = j.k.wake
			}
			free := c.began // since then nobody is in the way
			for _, b := range j.attempts {
				s := j.may[b]
				switch {
				case !apart(b, c.of), s.from.After(c.span().to):
				case !j.onlyWaits(b):
					free = latest(free, s.to)
				case c.of.req.Shared: // it keeps sharers out, as a gate
					free = latest(free, latest(j.gate(b).to, s.to))
				}
			}
			to := c.span().to
			if !c.ctxEnded.IsZero() {
				to = earliest(to, c.ctxEnded)
			}
			if to.Before(far) && to.Sub(free) > bound {
				j.broken(c, "the queue forgets its waiters, or a waiter that has left keeps its place",
					"%v waited for %v, and nobody was in its way since %s", c.of, to.Sub(c.began), j.at(free))
			}
		}
	}
}

// onlyWaits reports whether b was only in the queue. If its client was closed before its request
// arrived, nobody takes its place back.
func (j *judge) onlyWaits(b *attempt) bool {
	first := j.first(b)
	return !(j.broke(first) && j.closedBefore(first)) && b.req.Wait && j.grants[b] == nil && !slices.ContainsFunc(j.about[b], func(c *call) bool {
		return c.op == opAcquire && c.grant.Hold != nil
	})
}

// gate is when a waiting writer may keep sharers out.
func (j *judge) gate(b *attempt) (s span) {
	var arrived, noted time.Time
	for _, c := range j.calls {
		switch {
		case c.of == b && c.op == opAcquire:
			if c.err != nil {
				noted = c.ended
			}
			s = span{c.began, c.span().to}
			if !c.ended.IsZero() {
				arrived = j.arrives(c)
			}
			if !c.ended.IsZero() && c.err != nil && j.k.watched() {
				s.to = far
			} else if !c.ended.IsZero() && c.err != nil && !j.k.queue {
				s.to = latest(c.ended, arrived).Add(time.Second + j.k.tol)
			} else if !c.ended.IsZero() {
				s.to = arrived
			}
		case (c.op == opLeave && slices.Contains(c.noted, b) || c.op == opUndo && c.of == b) && c.err == nil &&
			c.began.After(s.from) && !c.ended.IsZero() && !arrived.After(c.began):
			s.to = earliest(s.to, c.ended)
		}
	}
	if grant := j.laterGrant(b, noted); grant != nil && !s.to.IsZero() { // it removes the caller's note
		s.to = earliest(s.to, latest(grant.ended, s.from))
	}
	return s
}

// arrives is until when the request of an ended call may be in flight.
func (j *judge) arrives(c *call) time.Time {
	if c.certain() {
		return c.ended
	}
	if l := j.lands(c.of, c); !l.IsZero() {
		return l
	}
	return j.underWay(c)
}

// laterGrant is the grant that the caller of b got by asking again, not before its note was there.
func (j *judge) laterGrant(b *attempt, noted time.Time) *call {
	for _, a := range j.attempts {
		grant := j.grants[a]
		if a.n >= b.n && a.who == b.who && a.req.Name == b.req.Name && a.req.Wait && !a.req.Shared && grant != nil &&
			!grant.began.Before(noted) {
			return grant
		}
	}
	return nil
}

func (j *judge) gates() {
	if j.k.g.Shared == locker.SharingNone {
		return
	}
	for _, w := range j.attempts {
		if w.req.Shared || !w.req.Wait {
			continue
		}
		if c := j.first(w); j.unnoted(c) {
			j.broken(c, "its refusal has no AskWithin", "%v waits for sharers to end, and has left no note that keeps new ones out", w)
		}
		shut := j.shut(w)
		if shut.to.IsZero() || shut.to.Sub(shut.from) < j.k.air {
			continue
		}
		for _, b := range j.attempts {
			grant := j.grants[b]
			if grant == nil || !b.req.Shared || b.req.Name != w.req.Name || !shut.covers(grant.span()) ||
				j.k.watched() && !j.beside(b, grant) {
				continue
			}
			if first := j.about[b]; len(first) > 0 && first[0] == grant { // and not one that asked before
				j.broken(grant, "a waiting writer leaves a note, or stands in the queue",
					"%v joined sharers, while the writer %v waited from %s", b, w, j.at(shut.from))
			}
		}
	}
}

// A record has room for this many notes of writers, with this many sharers.
const fewWriters, fewSharers = 4, 8

// unnoted reports whether a waiting writer was refused only because of sharers, and left no note.
func (j *judge) unnoted(c *call) bool {
	he := c.refusal()
	if j.k.queue || j.kernel() || !refused(c.err) || he != nil && he.AskWithin > 0 || !j.well(c) || j.broke(c) ||
		j.spoilt(c) {
		return false
	}
	others, sharers, writers := false, 0, 0 // in its way, or in the way of its note
	for _, a := range j.attempts {
		switch {
		case a == c.of || a.req.Name != c.name:
		case a.req.Shared:
			sharers++
			others = others || j.kept[a].covers(c.span())
		case j.may[a].touches(c.span()) && !j.may[a].to.IsZero():
			return false
		default:
			writers++
		}
	}
	return others && sharers <= fewSharers && writers < fewWriters
}

// beside reports whether another sharer was certainly there when b came: if the age of notes is
// unknown, a note keeps nobody from a free name.
func (j *judge) beside(b *attempt, grant *call) bool {
	return slices.ContainsFunc(j.attempts, func(a *attempt) bool {
		return a != b && a.req.Shared && a.req.Name == b.req.Name && j.kept[a].covers(grant.span())
	})
}

// shut is when a waiting writer certainly keeps sharers out.
func (j *judge) shut(w *attempt) (s span) {
	for _, c := range j.about[w] {
		if c.op != opAcquire || c.of != w || j.broke(c) {
			continue
		}
		if !c.queued.IsZero() && j.k.queue {
			s = span{c.queued.Add(j.k.air / 5), c.span().to}
			if !c.ctxEnded.IsZero() {
				s.to = earliest(s.to, c.ctxEnded)
			}
		}
		for _, l := range j.calls {
			if (l.op == opServers || l.op == opDelete || l.op == opBreak) && l.span().touches(s) {
				s.to = earliest(s.to, l.began)
			}
		}
		he := c.refusal()
		if he != nil && he.AskWithin > 0 {
			s = span{c.ended, c.began.Add(he.AskWithin)}.orNone() // its note is older than the answer
			for _, l := range j.calls {
				if next := l.refusal(); next != nil && next.AskWithin > 0 && !j.broke(l) &&
					l.op == opAcquire && !l.of.req.Shared && l.who == c.who && l.name == c.name &&
					l.began.After(c.began) && !l.ended.IsZero() && l.ended.Before(s.to) { // it continues to wait
					s.to = latest(s.to, l.began.Add(next.AskWithin))
					continue
				}
				again := l.op == opLeave && (l.who == c.who || j.askedBetween(l.who, c, l)) ||
					(l.op == opAcquire || l.op == opUndo) && !l.of.req.Shared && l.of.req.Wait && l.who == c.who ||
					l.op == opAcquire && !l.of.req.Shared && !refused(l.err) // it may be granted, which removes all notes
				if again && l != c && l.name == c.name && l.span().to.After(c.began) {
					s.to = earliest(s.to, latest(l.began, c.ended))
				}
				if (l.op == opServers || l.op == opDelete || l.op == opBreak) && l.span().touches(s) {
					s.to = earliest(s.to, l.began)
				}
			}
		}
	}
	return s
}

// askedBetween reports whether a client has asked between two calls, as a waiting writer: a service may
// keep only the note of the writer that asked last, until the others ask again.
func (j *judge) askedBetween(who string, c, l *call) bool {
	return slices.ContainsFunc(j.calls, func(d *call) bool {
		return d.op == opAcquire && d.who == who && d.name == c.name && d.of.req.Wait && !d.of.req.Shared &&
			d.span().to.After(c.began) && d.began.Before(l.began)
	})
}

// broke reports whether the connection was broken during a call, or soon afterwards.
func (j *judge) broke(c *call) bool {
	return slices.ContainsFunc(j.outages, func(o *outage) bool {
		return o.who == c.who && o.span().touches(span{c.began, c.span().to})
	})
}

// there returns what an Inspect of a name must see, and may see.
func (j *judge) there(c *call) (sure []*attempt, may []*attempt) {
	for _, a := range j.attempts {
		if a.req.Name != c.name {
			continue
		}
		if j.surely(a, c) {
			sure = append(sure, a)
		}
		if s := j.may[a]; !s.to.IsZero() && s.touches(c.span()) {
			may = append(may, a)
		}
	}
	return sure, may
}

func (j *judge) states() {
	for _, c := range j.calls {
		if c.op == opInspect && !c.ended.IsZero() && c.err == nil {
			if c.state.Name != c.name {
				j.broken(c, "", "Inspect of %.60q returns the state of %.60q", c.name, c.state.Name)
			}
			j.state(c, c.state)
		}
		if c.op == opBreak && c.seen != nil && c.seen.state.Held && c.seen.state.Holder == "" && c.err == nil {
			j.broken(c, "", "the State of a holder that can be removed has no Holder")
		}
	}
}

// state judges what was reported about a name.
func (j *judge) state(c *call, st locker.State) {
	if j.spoilt(c) {
		return
	}
	sure, may := j.there(c)
	bad := func(hint, format string, args ...any) {
		j.broken(c, hint, "%s reports %s: %s", c.op, fmt.Sprintf(format, args...), tellState(st))
	}
	var life time.Duration
	most, waiters := 0, 0
	waiting := slices.DeleteFunc(j.surelyWait(c), func(a *attempt) bool { return j.isHolder(a, c, st) })
	for _, a := range may {
		if len(sure) == 0 || sure[0].req.Shared || a == sure[0] {
			life = max(life, j.may[a].to.Sub(c.began), j.k.life(a))
		}
		if a.req.Shared {
			most++
		}
	}
	for _, a := range j.attempts {
		if j.mayWait(a, c) {
			waiters++
		}
	}
	switch {
	case st.Held && len(may) == 0:
		bad("", "a holder, and nobody may hold the name")
	case !st.Held && len(sure) > 0:
		bad("", "no holder, and %v holds the name", sure[0])
	case st.Held && j.k.keepsBack(fmt.Sprintf("the Holder by %s, shared %t", c.op, st.Sharers > 0), st.Holder != ""):
		bad("", "a holder that cannot be removed")
	case st.Remaining < 0 || st.Remaining > life && st.Held:
		bad("it is in the wrong unit", "that %v remain, of %v at most", st.Remaining, life)
	case st.Waiters < -1 || st.Waiters > waiters:
		bad("", "%d waiters, and there are %d at most", st.Waiters, waiters)
	case st.Waiters >= 0 && st.Waiters < len(waiting):
		bad("", "%d waiters, and there are %d", st.Waiters, len(waiting))
	case (st.Sharers > most || st.Sharers < 0) && !j.maybeMiscounted():
		bad("", "%d sharers, and there are %d at most", st.Sharers, most)
	case !st.Held && (st.Sharers != 0 || st.Token != 0 || st.Label != "" || len(st.Sharing) > 0 || st.Remaining != 0):
		bad("", "no holder, and details of one")
	}
	labels := func(what string, told []string, is func(*attempt) bool) {
		for i, label := range told {
			if slices.Contains(told[:i], label) || i >= 16 {
				bad("", "the label %.40q of %s twice, or more than 16", label, what)
			}
			if !slices.ContainsFunc(j.attempts, func(a *attempt) bool { return a.req.Label == label && is(a) }) {
				bad("", "the label %.40q of an attempt that is not %s", label, what)
			}
		}
	}
	labels("sharing", st.Sharing, func(a *attempt) bool { return a.req.Shared && slices.Contains(may, a) })
	labels("waiting", st.Waiting, func(a *attempt) bool { return j.mayWait(a, c) })
	for _, a := range waiting {
		label := a.req.Label
		if label != "" && waiters <= 16 && j.k.keepsBack("labels that wait by "+string(c.op), slices.Contains(st.Waiting, label)) {
			bad("", "the waiters without the label of %v", a)
		}
	}
	if !st.Held {
		return
	}
	if st.Label != "" && !slices.ContainsFunc(may, func(a *attempt) bool { return a.req.Label == st.Label }) && !j.sharedLabel(c.name, st) {
		bad("it is cut off, or another's", "the label %.40q, which no holder has", st.Label)
	}
	if len(sure) == 0 || j.parted(c) && len(may) > len(sure) { // votes of a request in flight, and votes not seen
		return
	}
	if one := sure[0]; !one.req.Shared && st.Label != "" && st.Label != one.req.Label {
		bad("it is a waiter's", "the label %.40q, and %v has %.40q", st.Label, one, one.req.Label)
	}
	sharers, until := 0, time.Time{}
	for _, a := range sure {
		if a.req.Shared {
			sharers++
		}
		until = latest(until, latest(j.toldUntil(a, c.began), j.keeps(a)))
		if token := j.grants[a].grant.Token; st.Token != 0 && st.Token != token && !j.raisedTo(a, st.Token) {
			bad("", "token %d, and %v has %d", st.Token, a, token)
		}
		if len(st.Sharing) > 0 && a.req.Shared && a.req.Label != "" && !slices.Contains(st.Sharing, a.req.Label) && most <= 16 {
			bad("", "the sharers without the label of %v", a)
		}
	}
	if short := until.Sub(c.ended) - st.Remaining; st.Remaining > 0 && !until.IsZero() && short > j.k.coarse && !j.parted(c) {
		bad("it is in the wrong unit, or belongs to another lock", "that %v remain, and %v were promised", st.Remaining, until.Sub(c.ended))
	}
	unnamed := slices.ContainsFunc(j.attempts, func(a *attempt) bool {
		return a.req.Label == "" && (slices.Contains(may, a) || a.req.Shared && a.req.Name == c.name) // a sharer that has left
	})
	j.k.knows(c, sure[0], !unnamed, until.Sub(c.ended) > j.k.coarse, st, bad)
	if st.Sharers < sharers && !j.maybeMiscounted() {
		bad("", "%d sharers, and there are %d", st.Sharers, sharers)
	}
}

// mayWait reports whether a may be in the queue during a call. Even a request that does not wait may
// have to take a place to see what is before it.
func (j *judge) mayWait(a *attempt, at *call) bool {
	waits := a.req.Wait || j.k.queue && j.grants[a] == nil
	return waits && a.req.Name == at.name && slices.ContainsFunc(j.about[a], func(c *call) bool {
		return c.op == opAcquire && span{c.began, latest(latest(c.span().to, j.arrives(c)), j.may[a].to).Add(j.k.air)}.touches(at.span())
	})
}

// maybeMiscounted reports whether a wrong number of sharers is tolerated: once in a history, because a
// kernel's table may change while it is read.
func (j *judge) maybeMiscounted() bool {
	j.miscounted++
	return j.miscounted < 2 && !j.virtual
}

// sharedLabel reports whether a label is that of a sharer, which may have left.
func (j *judge) sharedLabel(name string, st locker.State) bool {
	return st.Sharers > 0 && slices.ContainsFunc(j.attempts, func(a *attempt) bool {
		return a.req.Shared && a.req.Name == name && a.req.Label == st.Label
	})
}

// raisedTo reports whether the holder of a has raised the token to that one.
func (j *judge) raisedTo(a *attempt, token uint64) bool {
	return slices.ContainsFunc(j.about[a], func(c *call) bool { return c.op == opRaise && c.token == token })
}

// surelyWait returns the attempts that are certainly in the service's queue.
func (j *judge) surelyWait(at *call) (all []*attempt) {
	for _, c := range j.calls {
		if c.op == opAcquire && c.name == at.name && c.of.req.Wait && j.k.queue && !c.queued.IsZero() &&
			c.queued.Add(j.k.air).Before(at.began) && c.span().to.After(at.span().to.Add(j.k.air)) && !j.broke(c) &&
			(c.ctxEnded.IsZero() || c.ctxEnded.After(at.ended)) {
			all = append(all, c.of)
		}
	}
	return all
}

// isHolder reports whether a State shows an attempt as the holder that still waits for its answer: the
// grant may reach the client seconds later.
func (j *judge) isHolder(a *attempt, at *call, st locker.State) bool {
	granted := j.grants[a]
	if granted == nil || !st.Held || a.req.Shared != (st.Sharers > 0) || granted.grant.Validity.Since.After(at.ended) {
		return false
	}
	return a.req.Shared || (st.Token == 0 || st.Token == granted.grant.Token) && (st.Label == "" || st.Label == a.req.Label)
}

func (j *judge) lists() {
	for _, c := range j.calls {
		if c.op != opList || c.ended.IsZero() || c.err != nil {
			continue
		}
		seen := map[string]int{}
		for _, st := range c.listed {
			seen[st.Name]++
			if !strings.HasPrefix(st.Name, c.prefix) {
				j.broken(c, "a prefix is not a pattern", "List of %.60q reports %.60q", c.prefix, st.Name)
				continue
			}
			if seen[st.Name] > 1 {
				j.broken(c, "", "List reports %.60q twice", st.Name)
			}
			of := *c
			of.name = st.Name
			waited := st.Waiters < 0 && slices.ContainsFunc(j.attempts, func(a *attempt) bool {
				return a.req.Wait && a.req.Name == st.Name && j.about[a][0].began.Before(c.ended)
			})
			if !st.Held && len(st.Waiting) == 0 && st.Waiters <= 0 && !waited {
				j.broken(c, "", "List reports %.60q as free", st.Name)
			}
			j.state(&of, st)
		}
		for _, a := range j.attempts {
			if strings.HasPrefix(a.req.Name, c.prefix) && c.prefix != "" && j.surely(a, c) && seen[a.req.Name] == 0 {
				j.broken(c, "", "List of %.60q does not report %v, which holds", c.prefix, a)
			}
		}
	}
}

func (j *judge) wakes() {
	type ear struct {
		*call
		span
	}
	var ears []ear
	for _, n := range j.calls {
		if n.op == opNotify && n.err == nil && !n.ended.IsZero() {
			s := span{n.ended, far}
			for _, c := range j.calls {
				if c.op == opStop && c.seen == n || c.op == opClose && c.who == n.who {
					s.to = earliest(s.to, c.began)
				}
			}
			ears = append(ears, ear{n, s})
		}
	}
	for _, e := range ears {
		stays := func(r *call) bool { // and is connected for as long as a wake-up takes if nothing stalls
			c := *r
			c.who, c.ended = e.who, r.ended.Add(min(2*j.k.air, j.k.wake))
			return e.covers(c.span()) && j.well(&c)
		}
		for _, r := range j.calls {
			if r.name != e.name || r.err != nil || j.spoilt(r) || r.ended.IsZero() || r.who == e.who || !j.well(r) ||
				!e.covers(r.span()) {
				continue
			}
			if !j.healthy(e.who, r) {
				j.missed(e.call, e.span, r)
				continue
			}
			switch r.op {
			case opRelease, opUndo, opPass, opBreak:
				for _, left := range j.leavers(r) {
					since, is := j.refusedBy(e.who, e.from, left)
					if j.grants[left.of] == nil || !is || !j.heldBut(left).covers(span{r.began, r.began}) {
						continue
					}
					told := *left
					told.began = since
					passed := r.op == opPass && r.grant.Hold != nil
					switch {
					case passed && r.yield && since.Equal(r.began) && !j.gaveUp(e.call, r): // and not passed on before
						j.broken(r, "Pass does not see waiters", "%v was passed on inside %s, which was to yield, and %s waits",
							left.of, r.who, e.who)
					case !passed && stays(r) && !j.heard(e.call, "", &told) && !j.presentAfter(r) &&
						!(r.op == opPass && j.heard(nil, e.who, r)):
						j.broken(r, wakeHint, "%s listened, was refused, and was not woken when %v had left", e.who, left.of)
					}
				}
			case opLeave:
				if stays(r) && j.keptOutBy(e.who, e.from, r) && !j.heard(e.call, "", r) {
					j.broken(r, wakeHint, "%s listened, was kept out by a waiting writer, and was not woken when that left", e.who)
				}
			}
		}
	}
}

// missed judges what a client is told that was cut off when a holder left.
func (j *judge) missed(ear *call, s span, r *call) {
	for _, o := range j.outages {
		if o.who != ear.who || o.some || r.began.Before(o.sure) || !o.span().covers(r.span()) || r.of == nil || j.grants[r.of] == nil || r.op == opPass {
			continue
		}
		if _, is := j.refusedBy(ear.who, s.from, r); !is || j.presentAfter(r) {
			continue
		}
		told := span{r.began, o.span().to.Add(2 * j.k.soon)}
		if s.covers(told) && !slices.ContainsFunc(j.calls, func(c *call) bool {
			return c.op == opWake && c.seen == ear && told.covers(c.span())
		}) {
			j.broken(r, "a missed message must be made up for", "%s listened, was refused, was cut off when %v left, and was "+
				"not woken afterwards", ear.who, r.of)
		}
	}
}

const wakeHint = "it goes to another channel or name, or to one of several, is sent before the key is gone, or nobody listens"

// keptOutBy reports whether a listening sharer was refused alongside sharers only because of the writer
// that stops waiting with a call.
func (j *judge) keptOutBy(who string, since time.Time, r *call) (is bool) {
	for _, c := range j.calls {
		if c.op == opAcquire && c.who == who && c.name == r.name && !c.ended.IsZero() && c.ended.Before(r.began) {
			is = c.of.req.Wait && c.of.req.Shared && refused(c.err) && !c.began.Before(since)
		}
		if c.op == opAcquire && c.who == r.who && c.name == r.name && c.began.After(r.began) && c.began.Before(r.ended.Add(j.k.wake)) {
			return false // it asks again
		}
	}
	return is && !slices.ContainsFunc(j.attempts, func(a *attempt) bool {
		after := span{r.began, r.ended.Add(j.k.wake)}
		return a.req.Name == r.name && !a.req.Shared && (j.may[a].meets(after) || a.who != r.who && a.req.Wait && j.gate(a).meets(after))
	})
}

// leavers returns the call once for each attempt that certainly leaves with it.
func (j *judge) leavers(r *call) (all []*call) {
	if r.op != opBreak {
		return []*call{r}
	}
	for _, a := range j.attempts {
		if j.surelyBreaks(r, a) {
			left := *r
			left.of = a
			all = append(all, &left)
		}
	}
	return all
}

// refusedBy reports whether a listening waiter was refused because of a holder that left later, or
// passed the lock on, and has not asked since; and from when on it may be woken.
func (j *judge) refusedBy(who string, since time.Time, r *call) (from time.Time, is bool) {
	for _, c := range j.calls {
		if c.op == opAcquire && c.who == who && c.name == r.name && c.ended.Before(r.began) && !c.ended.IsZero() &&
			!(r.of.req.Shared && c.of.req.Shared) {
			a := r.of
			from = r.began
			for p := j.grants[a]; p != nil && p.op == opPass && p.next == a && !p.ended.Before(c.began) && j.well(p); p = j.grants[a] {
				a, from = p.of, p.began
			}
			is = c.of.req.Wait && refused(c.err) && !c.began.Before(since) && j.held[a].from.Before(c.began)
		}
	}
	return from, is
}

// gaveUp reports whether a listener's client may have left its line before a call was over.
func (j *judge) gaveUp(ear, r *call) bool {
	return slices.ContainsFunc(j.calls, func(c *call) bool {
		return c.op == opLeave && c.who == ear.who && c.name == r.name && c.began.After(ear.ended) && c.began.Before(r.ended)
	})
}

// heard reports whether a listener was woken soon after a call; nil: after any, except those of one
// client.
func (j *judge) heard(ear *call, but string, r *call) bool {
	return slices.ContainsFunc(j.calls, func(c *call) bool {
		return c.op == opWake && (c.seen == ear || ear == nil) && c.who != but && c.name == r.name &&
			c.began.After(r.began) && c.began.Before(r.ended.Add(j.k.wake))
	})
}

// healthy reports whether a client's connection worked around a call of another.
func (j *judge) healthy(who string, r *call) bool {
	c := *r
	c.who = who
	return j.well(&c) && j.well(r)
}

// presentAfter reports whether another may have been there while one left.
func (j *judge) presentAfter(r *call) bool {
	return slices.ContainsFunc(j.attempts, func(a *attempt) bool {
		s := j.may[a]
		broken := r.op == opBreak && !s.to.After(r.ended)
		return a != r.of && a.req.Name == r.name && s.from.Before(r.ended) && s.to.After(r.began) && !broken &&
			!(a.req.Wait && refused(j.first(a).err))
	})
}

// first is the first request of an attempt.
func (j *judge) first(a *attempt) *call {
	for _, c := range j.about[a] {
		if c.op == opAcquire {
			return c
		}
	}
	return &call{} // it came by Pass
}

func (j *judge) order() {
	if j.k.g.Order != locker.OrderFIFO {
		return
	}
	for _, c := range j.calls {
		if c.op != opAcquire || !c.of.req.Wait || !c.granted(c.of) || c.queued.IsZero() || !j.well(c) {
			continue
		}
		for _, d := range j.calls {
			if d.op == opAcquire && d.of.req.Wait && c.name == d.name && d.granted(d.of) &&
				c.queued.Add(j.k.air).Before(d.began) && d.ended.Add(j.k.air/10).Before(c.ended) &&
				!(c.of.req.Shared && d.of.req.Shared) && j.well(d) {
				j.broken(c, "", "%v was in the queue at %s, and %v, which came at %s, had the lock before it", c.of,
					j.at(c.queued), d.of, j.at(d.began))
			}
		}
	}
}

func (j *judge) closes() {
	for _, c := range j.calls {
		closed := j.closedAt(c.who)
		switch {
		case c.op == opClose && c.span().to.Sub(c.began) > max(j.k.soon, 1500*time.Millisecond)+j.k.tol:
			j.broken(c, "Close waits for a silent service", "Close took %v", c.span().to.Sub(c.began))
		case c.op == opClose && c.err != nil && !j.broke(c):
			j.broken(c, "", "Close failed: %v", oneLine(c.err))
		case c.op != opAcquire || closed == nil:
		case c.began.After(closed.span().to) && !errors.Is(c.err, locker.ErrClosed):
			j.broken(c, "", "Acquire of a closed Backend returned %v", c.err)
		case j.k.queue && !c.queued.IsZero() && c.queued.Before(closed.began) && c.ended.After(closed.began) && c.err != nil &&
			!errors.Is(c.err, locker.ErrClosed) && !j.broke(c) && !j.deleted(c.of) &&
			(c.ctxEnded.IsZero() || c.ctxEnded.After(closed.span().to.Add(j.k.air))):
			j.broken(c, "", "Acquire that waited when its Backend was closed returned %v", c.err)
		}
	}
}
