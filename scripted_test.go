package locker_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/memlock"
)

// scripted is a service in memory of which every request can be lost, late, slow, or refused. What it is
// like:
//
//	prompt    it returns with its contexts; deaf: it does not, and histories are not played as if it were
//	queue     it has a queue of its own; otherwise the engine asks again
//	notifies  it tells when a lock may be free
//	passes    a hold can be released and passed on in one request
//	watches   it tells holders unasked that their lock is gone
//	lasts     its holds have no deadline
//	session   a session keeps its holds, whatever their TTL
//	beats     likewise, and what a renewal brings moves on with its heartbeat, and not with the request
//	contended clients wait for whom a hold that is passed on may have to yield
//	owned     the client has opened it, and closes it
type scripted struct {
	*memlock.Backend
	traits []string
	made   time.Time

	mu      sync.Mutex
	scripts map[string][]string // by kind, or kind and name: what becomes of the next requests
	chance  func() string       // what becomes of those without a script
	fault   error               // of those that fail
	counts  map[string]int
	owners  map[string]bool
	wakes   map[int]func()
	wrong   []string
}

func newScripted(traits ...string) *scripted {
	s := &scripted{Backend: memlock.New(true), traits: traits, made: time.Now(), scripts: map[string][]string{},
		counts: map[string]int{}, owners: map[string]bool{}, wakes: map[int]func(){}}
	if s.is("lasts") {
		s.Backend = memlock.New(false)
	}
	return s
}

func (s *scripted) is(trait string) bool { return slices.Contains(s.traits, trait) }

// backend is s with the abilities that it has.
func (s *scripted) backend() driver.Backend {
	if s.is("notifies") {
		return scriptedNotifier{s}
	}
	return s
}

// Close counts, and is followed by no request.
func (s *scripted) Close() error {
	return s.request(context.Background(), "close", driver.Request{}, nil)
}

func (s *scripted) Prompt() bool { return s.is("prompt") }
func (s *scripted) Queue() bool  { return s.is("queue") }

func (s *scripted) Guarantees() locker.Guarantees {
	g := s.Backend.Guarantees()
	g.Backend, g.MinTTL, g.MaxTTL = "scripted", 100*time.Millisecond, time.Hour
	return g
}

func (s *scripted) count(kind string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind == "listeners" {
		return len(s.wakes)
	}
	return s.counts[kind]
}

// script says what becomes of the requests of a kind (see kinds), or of one for a name ("acquire x"): of
// the first, "then" of the second, and so on; the last stands for all that follow. The words are what
// happens to a request, one after the other:
//
//	ok        it is carried out (also if no other word ends it before)
//	2s        time passes, whatever its context does
//	hangs     there is no answer until its context ends, and then none, or what the next word says
//	queues    likewise, if the request asks to wait in the queue of the service
//	silent    likewise, for three seconds at most
//	cause     there is no answer until its context ends, and then the cause of that, as it is
//	down      the service cannot be reached
//	lost      there is no answer: it is not known what has come of it
//	late      likewise, and it is carried out two seconds later
//	gone      the answer is that the lock is not there
//	forever   the answer is that another has it, for ever
//	note      likewise, and the request has left a note; place: or the client a place in a line of the service
//	left      likewise, and it may have left more, which an undo removes; early: a moment before its context
//	          ends; vain: but the service cannot be reached
//	mistaken  the answer is that another has it, by an error; both: and that the client has it
//	refused   the answer is that the client has no right to it
//	queued    the service tells that others are before it in the queue; later: a second later, too late
//	recalled  the service tells that the lock is gone
func (s *scripted) script(kind, script string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripts[kind] = strings.Split(script, " then ")
}

// set says what becomes of all requests.
func (s *scripted) set(script string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.scripts)
	for _, kind := range kinds {
		s.scripts[kind] = []string{script}
	}
}

// kinds are those of requests; "passed" is the second half of a pass.
var kinds = []string{"acquire", "renew", "release", "pass", "passed", "notify", "leave", "undo"}

// request plays one request.
func (s *scripted) request(ctx context.Context, kind string, req driver.Request, carryOut func() error) error {
	if ctx.Err() != nil { // it is not sent
		return ctx.Err()
	}
	if carryOut == nil {
		carryOut = func() error { return nil }
	}
	s.mu.Lock()
	s.counts[kind]++
	s.counts[fmt.Sprint(kind, "-of-", ctx.Value(caller{}))]++
	if kind != "close" && s.counts["close"] > 0 {
		s.wrong = append(s.wrong, kind+" after Close")
	}
	key := kind
	if _, ok := s.scripts[kind+" "+req.Name]; ok {
		key += " " + req.Name
	}
	script := ""
	if of := s.scripts[key]; len(of) > 0 {
		script = of[0]
		s.scripts[key] = of[min(1, len(of)-1):]
	}
	if script == "" && s.chance != nil {
		script = s.chance()
	}
	s.mu.Unlock()
	done, told := false, false
	words := strings.Fields(script)
	for i, word := range words {
		switch word {
		case "ok":
			done = true
			if err := carryOut(); err != nil {
				return err
			}
		case "hangs":
			<-ctx.Done()
			if told {
				return fmt.Errorf("%w (%w)", locker.ErrHeld, ctx.Err())
			} else if i == len(words)-1 {
				return fmt.Errorf("no answer: %w: %w", ctx.Err(), locker.ErrUnavailable)
			}
		case "queues":
			if req.Wait {
				<-ctx.Done()
			}
		case "cause":
			<-ctx.Done()
			return context.Cause(ctx)
		case "silent":
			select {
			case <-ctx.Done():
			case <-time.After(3 * time.Second):
			}
		case "fails":
			return s.fault
		case "panics":
			panic("scripted")
		case "late":
			go func() { time.Sleep(2 * time.Second); _ = carryOut() }()
			return errNoAnswer
		case "note":
			return &heldError{driver.Refusal{AskWithin: 300 * time.Millisecond, Leave: s.asks("leave")}, nil}
		case "place":
			return &heldError{driver.Refusal{Leave: s.asks("leave")}, nil}
		case "left", "early", "vain":
			return &heldError{driver.Refusal{AskWithin: time.Second, Leave: s.asks("leave"), Undo: s.asks("undo")},
				map[string]error{"early": context.DeadlineExceeded, "vain": locker.ErrUnavailable}[word]}
		case "both":
			return cmp.Or(carryOut(), errBoth)
		case "queued":
			told = true
			req.Queued()
		case "later":
			time.AfterFunc(time.Second, req.Queued)
		case "recalled":
			req.Lost()
		default:
			if err := answers[word]; err != nil {
				return err
			}
			time.Sleep(amount(word))
		}
	}
	if done {
		return nil
	}
	return carryOut()
}

var (
	errDown     = fmt.Errorf("connection refused: %w", locker.ErrUnavailable)
	errNoAnswer = fmt.Errorf("no answer: %w", locker.ErrUnavailable)
	errRefused  = errors.New("no permission")
	errBoth     = errors.New("granted and refused")
	answers     = map[string]error{"down": errDown, "lost": errNoAnswer, "refused": errRefused,
		"mistaken": locker.ErrHeld, "gone": locker.ErrLost,
		"forever": &heldError{driver.Refusal{Remaining: math.MaxInt64}, nil}}
)

// heldError brings a refusal from where it is scripted to Acquire, with the error beside it.
type heldError struct {
	driver.Refusal
	beside error
}

func (*heldError) Error() string { return "held" }

func (s *scripted) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return s.acquire(ctx, "acquire", req)
}

func (s *scripted) acquire(ctx context.Context, kind string, req driver.Request) (driver.Grant, error) {
	s.mu.Lock()
	if len(req.Owner) != 40 || s.owners[req.Owner] {
		s.wrong = append(s.wrong, "an owner is used twice, or is none: "+req.Owner)
	}
	s.owners[req.Owner] = true
	s.mu.Unlock()
	h := s.sends(req)
	since := time.Now()
	err := s.request(ctx, kind, req, func() error {
		g, err := s.carryOut(ctx, req)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.grant = g
		return err
	})
	g := h.granted()
	h.undo.Sent(errors.Is(err, errNoAnswer) && g.Hold == nil)
	held, _ := errors.AsType[*heldError](err)
	switch {
	case g.Hold == nil && held != nil:
		return driver.Grant{Refused: &held.Refusal}, cmp.Or(held.beside, ctx.Err())
	case g.Hold == nil && errors.Is(err, locker.ErrHeld) && ctx.Err() != nil:
		return driver.Grant{Refused: &driver.Refusal{}}, ctx.Err()
	case errors.Is(err, errDown), errors.Is(err, errRefused), g.Hold == nil && g.Refused != nil:
		return g, err
	case errors.Is(err, errBoth):
		return driver.Grant{Hold: h.able(), Refused: &driver.Refusal{}}, nil
	case err != nil:
		return driver.Grant{Hold: h.able()}, err // what came of it is not known
	}
	if !s.is("queue") {
		g.Validity.Since = s.since(since)
	}
	if s.is("session") {
		g.Validity.TTL = req.TTL
	}
	g.Hold = h.able()
	return g, nil
}

// since is the beginning of a validity that was asked for now.
func (s *scripted) since(now time.Time) time.Time {
	if s.is("beats") {
		return s.made.Add(now.Sub(s.made).Truncate(ttl / 4))
	}
	return now
}

// carryOut is what the service does.
func (s *scripted) carryOut(ctx context.Context, req driver.Request) (driver.Grant, error) {
	name := req.Name
	if s.is("session") {
		req.TTL = 24 * time.Hour
	}
	if !s.is("watches") {
		req.Lost = func() {}
	}
	if !s.is("queue") {
		req.Wait, ctx = false, context.WithoutCancel(ctx) // what is carried out asks nobody
	}
	g, err := s.Backend.Acquire(ctx, req)
	if g.Refused != nil && err == nil {
		st, _ := s.Backend.Inspect(ctx, name)
		err = &heldError{driver.Refusal{Remaining: st.Remaining}, nil}
	}
	return g, err
}

// scriptedHold is that of one attempt.
type scriptedHold struct {
	s    *scripted
	req  driver.Request
	undo driver.Undo

	mu    sync.Mutex
	grant driver.Grant // without a Hold if it was not carried out
}

// sends is the hold of an attempt that is under way.
func (s *scripted) sends(req driver.Request) *scriptedHold {
	h := &scriptedHold{s: s, req: req}
	h.undo.Sends(max(req.TTL, req.MinHold))
	return h
}

// able is h with the abilities that it has.
func (h *scriptedHold) able() driver.Hold {
	if h.s.is("passes") {
		return scriptedPasser{h}
	}
	return h
}

func (h *scriptedHold) granted() driver.Grant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.grant
}

func (h *scriptedHold) Renew(ctx context.Context) (v driver.Validity, err error) {
	since := time.Now()
	h.undo.Sends(h.req.TTL)
	defer h.undo.Sent(false)
	err = h.s.request(ctx, "renew", h.req, func() (err error) {
		v, err = h.granted().Hold.Renew(ctx)
		return err
	})
	if v.Since = h.s.since(since); h.s.is("session") {
		v.TTL = h.req.TTL
	}
	return v, err
}

func (h *scriptedHold) Release(ctx context.Context, keep time.Duration) error {
	defer h.s.wake()
	return h.s.request(ctx, "release", h.req, func() error {
		if hold := h.granted().Hold; hold != nil {
			return hold.Release(ctx, keep)
		}
		return locker.ErrLost
	})
}

func (h *scriptedHold) Undo(ctx context.Context) error {
	if !h.s.is("session") && !h.s.is("lasts") {
		return h.undo.Undo(ctx, func(ctx context.Context) error { return h.Release(ctx, 0) })
	}
	if err := h.Release(ctx, 0); !errors.Is(err, locker.ErrLost) {
		return err
	}
	return nil
}

type scriptedPasser struct{ *scriptedHold }

func (h scriptedPasser) Pass(ctx context.Context, next driver.Request, yield bool) (g driver.Grant, err error) {
	err = h.s.request(ctx, "pass", next, func() error {
		if err := h.granted().Hold.Release(ctx, 0); err != nil {
			return err
		}
		if yield {
			_ = h.s.request(ctx, "yield", next, nil)
			if h.s.is("contended") {
				return nil
			}
		}
		g, err = h.s.acquire(ctx, "passed", next)
		return err
	})
	if err != nil && !errors.Is(err, locker.ErrLost) && g.Hold == nil {
		lost := h.s.sends(next)
		lost.undo.Sent(true)
		g.Hold = lost
	}
	return g, err
}

func (h *scriptedHold) RaiseToken(ctx context.Context, token uint64) error {
	return h.s.request(ctx, "operate", h.req, func() error {
		return h.granted().Hold.(driver.TokenRaiser).RaiseToken(ctx, token)
	})
}

// As gives the request away, to look at.
func (h *scriptedHold) As(target any) bool {
	p, ok := target.(*driver.Request)
	if ok {
		*p = h.req
	}
	return ok
}

func (s *scripted) Inspect(ctx context.Context, name string) (st locker.State, err error) {
	err = s.request(ctx, "operate", driver.Request{}, func() error {
		st, err = s.Backend.Inspect(ctx, name)
		return err
	})
	return st, err
}

func (s *scripted) List(ctx context.Context, prefix string) iter.Seq2[locker.State, error] {
	if err := s.request(ctx, "operate", driver.Request{}, nil); err != nil {
		return func(yield func(locker.State, error) bool) { yield(locker.State{}, err) }
	}
	return s.Backend.List(ctx, prefix)
}

func (s *scripted) Break(ctx context.Context, st locker.State) error {
	return s.request(ctx, "operate", driver.Request{}, func() error { return s.Backend.Break(ctx, st) })
}

func (s *scripted) Check(ctx context.Context) (found []locker.Finding, err error) {
	return []locker.Finding{{What: "disk"}}, s.request(ctx, "operate", driver.Request{}, nil)
}

type scriptedNotifier struct{ *scripted }

func (s scriptedNotifier) Notify(ctx context.Context, name string, wake func()) (stop func(), err error) {
	n := 0
	err = s.request(ctx, "notify", driver.Request{Name: name}, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		n = s.counts["notify"]
		s.wakes[n] = wake
		return nil
	})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.wakes, n)
	}, err
}

// asks is the Leave or the Undo of a refusal.
func (s *scripted) asks(kind string) func(context.Context) error {
	return func(ctx context.Context) error { return s.request(ctx, kind, driver.Request{}, nil) }
}

// held reports whether somebody holds name.
func (s *scripted) held(name string) bool {
	st, err := s.Backend.Inspect(context.Background(), name)
	return err != nil || st.Held
}

// wake tells those who wait that a lock may be free.
func (s *scripted) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, wake := range s.wakes {
		wake()
	}
}
