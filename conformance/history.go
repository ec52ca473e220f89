package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
)

// op is an operation or an event.
type op string

// Operations of the contract, and other events of a history.
const (
	opAcquire  op = "Acquire"
	opRenew    op = "Renew"
	opRelease  op = "Release"
	opKeep     op = "Release(keep)" // with what is left of a MinHold
	opPass     op = "Pass"
	opUndo     op = "Undo"
	opRaise    op = "RaiseToken"
	opInspect  op = "Inspect"
	opList     op = "List"
	opBreak    op = "Break"
	opDelete   op = "Delete" // behind the backend's back
	opClose    op = "Close"
	opLeave    op = "Leave"
	opLost     op = "Lost"   // reported by the backend
	opWake     op = "wake"   // by Notify
	opNotify   op = "Notify" // until stop is called
	opStop     op = "stop"
	opServers  op = "servers" // restarted, failed over, …
	opLeftover op = "leftovers"
)

// attempt is one owner, and its outcome.
type attempt struct {
	who  string
	n    int
	req  driver.Request
	hold driver.Hold // as the history sees it; nil: none was returned
	last bool        // it must not be repeated any more

	earlier []driver.Hold // of repeated requests: each must be ended, too
}

func (a *attempt) String() string { return fmt.Sprintf("%s#%d", a.who, a.n) }

// call is one call as an interval, with its answer.
type call struct {
	op    op
	who   string
	name  string
	of    *attempt // nil: none
	next  *attempt // of a Pass
	yield bool
	noted []*attempt // of one wait, whose notes a Leave removes
	token uint64     // that RaiseToken was given
	keep  time.Duration
	seen  *call // the Inspect whose State Break got; the Notify of a wake or a stop

	began    time.Time
	over     bool      // its context had ended before
	endless  bool      // its context does not end
	deadline time.Time // of its context
	ctxEnded time.Time // zero: not before the call
	ended    time.Time // zero: it has not returned
	err      error
	queued   time.Time // when the backend said that others are before it
	grant    driver.Grant
	state    locker.State
	listed   []locker.State // of names of this history
	prefix   string
	left     []string
}

// outage is an interval in which a client's connection was broken in one way.
type outage struct {
	who      string
	fault    fault
	some     bool      // to some of the servers only
	from, to time.Time // zero to: it continues
	sure     time.Time // when it was certainly set
}

// history is everything asked and answered in one script.
type history struct {
	began   time.Time
	virtual bool
	seed    uint64 // of its script

	mu       sync.Mutex
	alike    map[*attempt]bool // another owner is similar
	calls    []*call           // in the order in which they began
	outages  []*outage
	attempts []*attempt
}

// tick lets some time pass in virtual time, so that successive events have different times.
func (h *history) tick() {
	if h.virtual {
		time.Sleep(time.Microsecond)
	}
}

// change changes something already in the history.
func (h *history) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *history) add(c *call) *call {
	h.change(func() {
		c.began = time.Now()
		h.calls = append(h.calls, c)
	})
	return c
}

// happened adds an instant event.
func (h *history) happened(c *call) { h.end(h.add(c)) }

func (h *history) end(c *call) {
	h.change(func() { c.ended = time.Now() })
}

// owner makes a new owner: similar to one that has left, except for one digit, so that a partial
// comparison takes them for equal.
func (h *history) owner(name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	const digits = "0123456789abcdef"
	for _, c := range h.calls {
		if c.op == opRelease && c.name == name && c.err == nil && !c.ended.IsZero() && !h.alike[c.of] {
			h.alike[c.of] = true
			next := []byte(c.of.req.Owner)
			at := []int{39, 0, 31, 15}[(h.seed+uint64(len(h.alike)))%4]
			next[at] = digits[(strings.IndexByte(digits, next[at])+1)%16]
			return string(next)
		}
	}
	return owner()
}

// attempt adds an owner.
func (h *history) attempt(who string, req driver.Request) *attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := &attempt{who: who, n: len(h.attempts) + 1, req: req}
	h.attempts = append(h.attempts, a)
	return a
}

// line records a new state of a client's connection. The history never shows more of an outage than
// there was.
func (h *history) line(s *spy, f fault) {
	end := func() {
		for _, o := range h.outages {
			if o.who == s.who && o.to.IsZero() {
				o.to = time.Now()
			}
		}
	}
	h.change(end)
	from := time.Now()
	f.set(s.line)
	if f != noFault {
		o := &outage{who: s.who, fault: f, some: s.some, from: from, sure: time.Now()}
		h.change(func() { h.outages = append(h.outages, o) })
	}
}

// copy is a snapshot of the history.
func (h *history) copy() *history {
	h.mu.Lock()
	defer h.mu.Unlock()
	other := &history{began: h.began, virtual: h.virtual, attempts: slices.Clone(h.attempts)}
	copies := make(map[*call]*call, len(h.calls))
	for _, c := range h.calls {
		d := *c
		d.seen = copies[c.seen]
		copies[c] = &d
		other.calls = append(other.calls, &d)
	}
	for _, o := range h.outages {
		p := *o
		other.outages = append(other.outages, &p)
	}
	return other
}

// pick returns a client's attempts that have a hold, in order.
func (h *history) holds(who, name string) (all []*attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.attempts {
		if a.who == who && a.req.Name == name && a.hold != nil {
			all = append(all, a)
		}
	}
	return all
}

// at formats a moment for reports.
func (h *history) at(t time.Time) string {
	if t.IsZero() {
		return "?"
	}
	if d := t.Sub(h.began); d > 1e6*time.Second {
		return fmt.Sprintf("+%.0f days", d.Hours()/24)
	}
	if h.virtual {
		return fmt.Sprintf("%+.6fs", t.Sub(h.began).Seconds())
	}
	return fmt.Sprintf("%+.4fs", t.Sub(h.began).Seconds())
}

// until formats the end of a hold.
func (h *history) until(t time.Time) string {
	if t.Sub(h.began) > 50*366*24*time.Hour {
		return "for as long as it likes"
	}
	return "until " + h.at(t)
}

// tell describes a call on one line.
func (h *history) tell(c *call) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s..%s  %s %s", h.at(c.began), h.at(c.ended), c.who, c.op)
	if a := c.of; a != nil {
		fmt.Fprintf(&b, " (%v", a)
		if c.op == opAcquire {
			for what, is := range map[string]bool{"shared": a.req.Shared, "waits": a.req.Wait} {
				if is {
					b.WriteString(", " + what)
				}
			}
			fmt.Fprintf(&b, ", %v", a.req.TTL)
			if a.req.MinHold > 0 {
				fmt.Fprintf(&b, ", MinHold %v", a.req.MinHold)
			}
		}
		if c.op == opKeep {
			fmt.Fprintf(&b, ", %v", c.keep)
		}
		b.WriteString(")")
	}
	switch {
	case c.ended.IsZero():
		b.WriteString(": has not returned")
	case c.err != nil:
		fmt.Fprintf(&b, ": %v", oneLine(c.err))
	case c.grant.Hold != nil || c.op == opRenew:
		b.WriteString(": holds " + h.until(c.grant.Validity.Until()))
		if c.grant.Token != 0 {
			fmt.Fprintf(&b, ", token %d", c.grant.Token)
		}
	case c.op == opInspect:
		b.WriteString(": " + tellState(c.state))
	case c.op == opList:
		fmt.Fprintf(&b, " %.40q: %d names of these", c.prefix, len(c.listed))
	case c.op == opRaise:
		fmt.Fprintf(&b, " to %d: done", c.token)
	default:
		b.WriteString(": done")
	}
	if !c.ctxEnded.IsZero() && (c.ended.IsZero() || c.ctxEnded.Before(c.ended)) {
		fmt.Fprintf(&b, " (its context ended at %s)", h.at(c.ctxEnded))
	}
	for _, o := range h.outages {
		if o.who == c.who && o.from.Before(c.span().to) && (o.to.IsZero() || c.began.Before(o.to)) {
			fmt.Fprintf(&b, " [%s%s]", o.fault, map[bool]string{true: ", of some servers"}[o.some])
			break
		}
	}
	return b.String()
}

// tellState is a State without its zero fields.
func tellState(st locker.State) string {
	if !st.Held {
		return fmt.Sprintf("free, %d wait", st.Waiters)
	}
	text := fmt.Sprintf("held by %.40q for %v, token %d, %d wait", st.Label, st.Remaining, st.Token, st.Waiters)
	if st.Sharers > 0 {
		text += fmt.Sprintf(", %d share", st.Sharers)
	}
	return text
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// timelineOf is the call, and on the lines before it the earlier calls on its name. Witnesses are
// included however early they came.
func (h *history) timelineOf(of *call, lines int, witness map[*call]bool) (told []string) {
	var before []*call
	for _, c := range h.calls {
		if c != of && (c.name == of.name || c.op == opServers) && c.op != opWake &&
			!c.began.After(of.span().to) {
			before = append(before, c)
		}
	}
	slices.SortStableFunc(before, func(a, b *call) int { return a.span().to.Compare(b.span().to) })
	for i, c := range before {
		if mark := map[bool]string{true: "* ", false: "  "}[witness[c]]; witness[c] || i > len(before)-lines {
			told = append(told, mark+h.tell(c))
		}
	}
	return append(told, "> "+h.tell(of))
}

// span is an interval.
type span struct{ from, to time.Time }

// far is later than everything in a history.
var far = time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC)

func (s span) meets(other span) bool { return s.from.Before(other.to) && other.from.Before(s.to) }

// touches is meets, but also true if only one moment is common.
func (s span) touches(other span) bool { return !s.from.After(other.to) && !other.from.After(s.to) }

// orNone is s, or nothing if it ends before it begins.
func (s span) orNone() span {
	if !s.from.Before(s.to) {
		return span{}
	}
	return s
}

// covers reports whether all of other is in s.
func (s span) covers(other span) bool { return !s.from.After(other.from) && !s.to.Before(other.to) }

func (c *call) span() span {
	if c.ended.IsZero() {
		return span{c.began, far}
	}
	return span{c.began, c.ended}
}

func (o *outage) span() span {
	if o.to.IsZero() {
		return span{o.from, far}
	}
	return span{o.from, o.to}
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Answers.

func ofContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func refused(err error) bool { return errors.Is(err, locker.ErrHeld) && !ofContext(err) }

// certain reports whether the answer says what has happened.
func (c *call) certain() bool {
	return !c.ended.IsZero() && (c.err == nil || refused(c.err) || errors.Is(c.err, locker.ErrLost))
}

// granted reports whether the call says that a has the lock.
func (c *call) granted(a *attempt) bool {
	if c.ended.IsZero() || c.err != nil {
		return false
	}
	return c.of == a && (c.op == opAcquire || c.op == opRenew) || c.next == a && c.grant.Hold != nil
}

// asks reports whether the call is a request of a hold or an attempt.
func (c *call) asks() bool {
	switch c.op {
	case opAcquire, opRenew, opRelease, opKeep, opPass, opUndo, opRaise:
		return true
	}
	return false
}
