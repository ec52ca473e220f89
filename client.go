package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/oneline"
)

// Client is the engine: it grants leases on the locks of one [driver.Backend], renews them, and tells
// their holders when they end. It is a [Locker]. Its methods may be called from many goroutines at
// once.
type Client struct {
	backend driver.Backend
	made    time.Time
	opts    Options
	owned   bool  // Open made the backend, so Close closes it
	prompt  bool  // the backend is a Prompt, and confirms it
	queue   bool  // the service has a queue
	trace   Trace // opts.Trace, or one without functions

	guarantees Guarantees

	lines    lines
	schedule schedule
	busy     inFlight     // everything that Close waits for
	undoing  atomic.Int64 // take-backs with a request in flight
	failing  atomic.Int64 // leases whose last renewal has failed

	statsMu sync.Mutex
	stats   Stats

	life    context.Context // ends when Close begins
	endLife context.CancelCauseFunc
	rest    context.Context // of requests that no caller waits for; ends when Close does
	endRest context.CancelFunc
	closed  func() error // closes, once

	mu       sync.Mutex
	pending  map[*Lease]struct{} // leases that are being taken back
	undoneAt time.Time           // when the last take-back of a possible sharer was done
}

var _ Locker = (*Client)(nil)

// New returns a Client that uses b, with the settings in opts; nil means the defaults. It sends no
// request. The caller still owns b and closes it after the Client if necessary. If a setting is wrong
// for every backend, or for this one, the error matches ErrInvalid and says which values are valid.
func New(b driver.Backend, opts *Options) (*Client, error) {
	c, err := newClient(b, opts)
	if err != nil {
		return nil, &Error{Op: "new", Err: err}
	}
	return c, nil
}

func newClient(b driver.Backend, opts *Options) (*Client, error) {
	if b == nil {
		return nil, invalid("the Backend is nil")
	}
	c := &Client{backend: b, made: time.Now(), pending: make(map[*Lease]struct{})}
	c.schedule.stepped = func() {
		for _, l := range c.lines.leases() {
			go func() { _ = l.Err() }() // looks at both clocks
		}
	}
	c.lines.byName, c.lines.held = make(map[string]*line), make(map[*Lease]struct{})
	c.busy.none = make(chan struct{}, 1)
	c.closed = sync.OnceValue(c.close)
	c.life, c.endLife = context.WithCancelCause(context.Background())
	c.rest, c.endRest = context.WithCancel(context.Background())
	c.guarantees = b.Guarantees()
	p, ok := b.(driver.Prompt)
	c.prompt = ok && p.Prompt()
	c.queue = driver.HasQueue(b)
	if opts != nil {
		c.opts = *opts
	}
	if c.opts.Trace != nil {
		c.trace = *c.opts.Trace
	}
	if err := c.opts.check(); err != nil {
		return nil, err
	}
	if _, err := c.settingsFor(nil); err != nil { // such as a TTL outside the backend's bounds
		return nil, err
	}
	if c.opts.Label == "" {
		c.opts.Label = defaultLabel()
	}
	if c.opts.Logger == nil {
		c.opts.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// Guarantees returns the promises of the backend.
func (c *Client) Guarantees() Guarantees {
	if c == nil {
		return Guarantees{}
	}
	return c.guarantees
}

// Inspect returns the state of name, as far as the service knows it. It is for people and tests; never
// decide by it whether to act. The error matches [errors.ErrUnsupported] if the backend has no
// [driver.Operator].
func (c *Client) Inspect(ctx context.Context, name string) (State, error) {
	return operate(ctx, c, "inspect", name, "tell who holds a lock", checkName(name), func(o driver.Operator) (State, error) {
		st, err := o.Inspect(ctx, c.opts.Prefix+name)
		return c.own(st, name), err
	})
}

// List returns the State of every name that begins with prefix and that a client with the same
// Options.Prefix holds or waits for, in no particular order. It is for people: names come and go during
// the request, which is completed before the first State is yielded. An error is yielded last, after
// the States found so far; if ctx ends first, those are only some of the names. The error matches
// [errors.ErrUnsupported] if the backend has no [driver.Operator].
//
//	for st, err := range client.List(ctx, "invoice/") { … }
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		var mu sync.Mutex
		var all []State
		_, err := operate(ctx, c, "list", prefix, "list its locks", nil, func(o driver.Operator) (none struct{}, err error) {
			for st, err := range o.List(ctx, c.opts.Prefix+prefix) {
				if err = cmp.Or(err, ctx.Err()); err != nil {
					return none, err
				}
				name, ok := strings.CutPrefix(st.Name, c.opts.Prefix)
				if ok && strings.HasPrefix(name, prefix) {
					mu.Lock()
					all = append(all, c.own(st, name))
					mu.Unlock()
				}
			}
			return none, ctx.Err()
		})
		mu.Lock()
		found := all // a backend that ignores ctx may still be appending
		mu.Unlock()
		for _, st := range found {
			if !yield(st, nil) {
				return
			}
		}
		if err != nil {
			yield(State{}, err)
		}
	}
}

// Break takes the lock from the holder in st, a State that Inspect or List of this Client returned. nil
// means that this holder no longer has it; if another holder has it by then, nothing changes. It is for
// an operator who knows that the holder no longer acts. A holder that still acts learns of it at its
// next renewal at the latest. Until then two holders may act, and only a fencing token that the
// resource checks stops the first. If st is Held without a Holder, because it comes from elsewhere or
// the backend cannot tell holders apart, the error matches [ErrInvalid]. It matches
// [errors.ErrUnsupported] if the backend has no [driver.Operator].
func (c *Client) Break(ctx context.Context, st State) error {
	wrong := checkName(st.Name)
	if wrong == nil && st.Held && st.Holder == "" {
		wrong = invalid("the State has no Holder: Break takes what Inspect or List has returned")
	}
	_, err := operate(ctx, c, "break", st.Name, "break a lock", wrong, func(o driver.Operator) (none struct{}, err error) {
		if st.Held {
			st.Name = c.opts.Prefix + st.Name
			err = o.Break(ctx, st)
		}
		return none, err
	})
	return err
}

// Check looks for settings of the service that break its [Guarantees], and returns its findings, good
// and bad. It changes nothing. An error means that the service could not be checked; it matches
// [errors.ErrUnsupported] if the backend has no [driver.Checker].
func (c *Client) Check(ctx context.Context) ([]Finding, error) {
	return operate(ctx, c, "check", "", "check its service", nil, func(ch driver.Checker) ([]Finding, error) {
		return ch.Check(ctx)
	})
}

// operate runs f, a request that no lock waits for, if the backend implements I. It returns in time
// (R8).
func operate[I, T any](ctx context.Context, c *Client, op, name, what string, wrong error,
	f func(I) (T, error)) (none T, err error) {
	var v T
	i, ok := c.backend.(I)
	switch {
	case c.isClosed():
		err = ErrClosed
	case wrong != nil:
		err = wrong
	case !ok:
		err = fmt.Errorf("backend %s cannot %s: %w", c.guarantees.Backend, what, errors.ErrUnsupported)
	default:
		v, err = aside(ctx, func() (T, error) { return f(i) })
	}
	if err != nil {
		return none, &Error{Op: op, Name: name, Err: err}
	}
	return v, nil
}

// aside calls f, which asks the backend. It returns in time, with an error of this package.
func aside[T any](ctx context.Context, f func() (T, error)) (T, error) {
	v, err := inTime(ctx, func(job func()) { go job() }, f, func(T, error) {})
	return v, fromBackend(ctx, err)
}

// own returns st in this Client's terms: the name without prefix, and the token that its holder's lease
// has.
func (c *Client) own(st State, name string) State {
	st.Name = name
	if st.Token != 0 {
		st.Token += c.opts.TokenBase
	}
	return st
}

// closeTimeout bounds Close, and releaseTime the part of it for releasing locks. The rest is for the
// backend's own Close. Close promises five seconds; a busy machine needs the difference.
const (
	closeTimeout = 4 * time.Second
	releaseTime  = 2500 * time.Millisecond
)

// Close ends every wait with ErrClosed, releases every lease still held ([Lease.Err] is then
// ErrClosed), waits for take-backs in flight, and closes the backend if [Open] made it. It returns
// within five seconds even if the service does not answer; a lock that could not be released then ends
// with its TTL, and the error says so. A lock under [MinHold] ends when its MinHold does. After Close,
// no goroutine of the Client is left, except those that wait for a hanging service or run a Trace
// function. A Trace function may call Close.
func (c *Client) Close() error { return c.closed() }

func (c *Client) close() error {
	began := time.Now()
	before := c.Stats().LeftBehind
	c.endLife(errClosing)
	c.lines.close()
	for _, l := range c.lines.leases() {
		l.close()
	}
	c.mu.Lock()
	waiting := slices.Collect(maps.Keys(c.pending))
	c.mu.Unlock()
	for _, l := range waiting {
		l.undoAtClose()
	}
	quiet := c.busy.wait(began.Add(releaseTime))
	c.schedule.stop()
	c.endRest()
	var err error
	if !quiet || c.Stats().LeftBehind > before {
		err = fmt.Errorf("not every lock could be released, the TTL or session ends the rest: %w", ErrUnavailable)
	}
	if c.owned {
		ctx, cancel := context.WithDeadline(context.Background(), began.Add(closeTimeout-lastWord))
		defer cancel()
		_, closeErr := aside(ctx, func() (struct{}, error) { return struct{}{}, c.backend.Close() })
		if ctx.Err() != nil && errors.Is(closeErr, ctx.Err()) {
			closeErr = fmt.Errorf("backend %s is still closing its connections in the background: %w",
				c.guarantees.Backend, ErrUnavailable)
		}
		err = oneline.Join(err, closeErr)
	}
	if err != nil {
		err = &Error{Op: "close", Err: err}
	}
	return err
}

func (c *Client) isClosed() bool { return c.life.Err() != nil }

// untilClose returns the context of a call that waits, and the function with which Close or MaxWait
// ends it. Calls with context.Background and no MaxWait share one context that ends with the client;
// their function does nothing.
func (c *Client) untilClose(ctx context.Context, bounded bool) (context.Context, context.CancelCauseFunc) {
	if ctx == context.Background() && !bounded {
		return c.life, func(error) {}
	}
	return context.WithCancelCause(ctx)
}
