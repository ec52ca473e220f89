package locker

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/label"
)

// The greatest lengths of names.
const (
	MaxNameLen   = driver.MaxNameLen   // 512 bytes of UTF-8 in a lock's name
	MaxPrefixLen = driver.MaxPrefixLen // 128 bytes of UTF-8 in Options.Prefix
	MaxLabelLen  = driver.MaxLabelLen  // 128 bytes of UTF-8 in a label
)

// MaxToken is the highest fencing token that a backend may give, and the highest
// Options.TokenBase: 2⁶³-1.
const MaxToken = driver.MaxToken

// DefaultTTL (30 s) is the TTL of a lease if none is given and the backend's bounds allow it.
const DefaultTTL = driver.DefaultTTL

// Options are the settings of a [Client]. The zero value, or nil, means the
// defaults.
type Options struct {
	// TTL is how long a lock outlives the last renewal of its lease. If a holder dies, others wait that
	// long. An outage of the service may last almost as long without ending a lease. Leases are renewed
	// every third of the TTL. 0: DefaultTTL.
	TTL time.Duration

	// MaxHold bounds how long a lease lasts, including renewals but not the wait for it, so that a
	// holder that is stuck but still renews cannot keep the others out forever. At that bound the lease
	// ends with ErrLost. 0: no bound.
	MaxHold time.Duration

	// Prefix is put before every name, so that programs that share a service do not use the same name
	// by accident. Two clients compete for a lock if prefix and name, concatenated, are equal.
	Prefix string

	// Label describes the holder to people, as Inspect shows it. "": program, host and process ID.
	Label string

	// TokenBase is added to every fencing token. After a move to a service whose tokens are lower, set
	// it above every token granted so far, so that resources accept the new ones. It is at most
	// MaxToken, so that no sum overflows.
	TokenBase uint64

	// OutageTimeout is how long Lock waits for an outage to end. While the service is unreachable, too
	// slow or just starting, Lock keeps asking, less and less often, for that long, and then returns
	// ErrUnavailable. It does not apply to Open. 0: the TTL. Negative: Lock returns at once, as TryLock
	// always does. A call that waits behind another one of the same Client learns of an outage when
	// that call's request has failed. [MaxWait] may end the wait sooner.
	OutageTimeout time.Duration

	// Trace has functions that the Client calls on events in a lock's life. nil: none.
	Trace *Trace

	// Logger gets warnings about lost leases, renewals that begin to fail, locks that could not be
	// taken back, and outages that a Lock waits out. For each lease, one record says that renewals fail
	// and one that they succeed again; only the first record of an outage includes the cause.
	// Trace.Renewed reports every attempt. The handler must not block for long. nil: no logging.
	Logger *slog.Logger

	_ struct{}
}

// Option changes one setting for one call.
type Option interface{ apply(*settings) }

// Asked is what options ask for. A zero field leaves the choice to the Client's Options.
type Asked struct {
	_ struct{}

	TTL, MaxHold, MinHold time.Duration
	MaxWait               *time.Duration // nil: no bound
	NoRenew, Shared       bool
	Label                 string
}

// AskedBy returns what opts ask for. It is for wrappers of a [Locker], and for packages in which an
// option has another meaning or none.
func AskedBy(opts ...Option) Asked { return settings{}.with(opts).Asked }

// settings are the options of one call.
type settings struct {
	Asked
	ttlGiven, holdGiven bool
}

type optionFunc func(*settings)

func (f optionFunc) apply(s *settings) { f(s) }

// TTL sets Options.TTL for one call.
func TTL(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.TTL, s.ttlGiven = d, true })
}

// MaxHold sets Options.MaxHold for one call.
func MaxHold(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.MaxHold, s.holdGiven = d, true })
}

// MaxWait bounds the wait for the lock but not the work done under it, as a context's deadline would:
//
//	err := locker.Do(ctx, l, "report", report, locker.MaxWait(2*time.Second))
//
// Once d has passed since the call, Lock returns the reason why it has no lock: the error matches
// ErrHeld or ErrUnavailable, but no error of a context. MaxWait never cuts the first attempt short, so
// that a slow service is not mistaken for a held lock: Lock returns the answer to that attempt, which
// may be a lease. The service's own timeouts bound the attempt. If another caller of the same Client is
// asking the service when d has passed and this call has no answer yet, it continues as
// [Locker].TryLock would. Lock can therefore return later than d, by the timeout of one request, or of
// those of the callers before it. With a d of 0, Lock is TryLock. In an outage, Lock returns after the
// shorter of d and [Options].OutageTimeout.
//
// In [LockAll], [DoAll] and the waiting calls of package slots, it bounds the whole call. TryLock and
// TryDo do not wait; with MaxWait, their error matches ErrInvalid.
func MaxWait(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.MaxWait = &d })
}

// MinHold makes the service keep the lock for at least d after the grant, even if by then the lease is
// unlocked or lost, or its client is closed or dead. If many machines try once per hour, only one does
// the work. If the holder unlocks early and the service confirms it, the lock ends when its MinHold
// does. That can be later by at most [Guarantees].MinHoldSlack plus 1 % of the MinHold plus the time
// that Unlock took. Otherwise the lock can last for the TTL, if that is longer.
//
//	err := locker.TryDo(ctx, l, "hourly report", report, locker.MinHold(55*time.Minute))
//
// The lease is like any other and ends with Unlock, but the lock stays. If the work was never begun,
// [Lease.GiveBack] ends the lease and frees the lock. If the service cannot keep a lock without its
// client, the error matches [errors.ErrUnsupported].
func MinHold(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.MinHold = d })
}

// NoRenew leaves renewing to the holder: unless it calls [Lease.Renew], the lease ends with its TTL.
func NoRenew() Option {
	return optionFunc(func(s *settings) { s.NoRenew = true })
}

// Shared asks for the name as a reader. Any number of readers, up to [MaxSharers], hold it at the same
// time, each with its own lease. A caller without Shared, a writer, holds it exclusively. A waiting
// writer keeps new readers out, so it gets its turn when the readers before it have ended. A dead
// reader delays it by the reader's own TTL at most.
//
// Use it where reading takes long or happens on many hosts at once, and a reader must not see half of a
// writer's work: a migration must wait for a running backup. If readers are short and few, a plain lock
// is simpler and costs no more. Readers are protected while their lease lasts: a paused reader may go
// on reading while a writer writes.
//
// Concurrent readers have the same token, if the [Guarantees] say that shared leases have one. A
// writer's token is greater than that of every reader before it, so a guard of package fencing also
// refuses late readers.
//
// A reader cannot become a writer: two that tried would wait for each other. Unlock, lock without
// Shared, and read again, since the data may have changed in between. A call whose context is inside a
// shared lease on the name, as in [Do], is refused with an error that matches [ErrInvalid]. That
// includes a Shared call: it would wait behind a writer that waits for the first lease. If the service
// has no shared locks, the error matches [errors.ErrUnsupported].
func Shared() Option {
	return optionFunc(func(s *settings) { s.Shared = true })
}

// MaxSharers (4,096) is how many readers can hold one name together. Further ones wait in line if all
// of these are leases of their own Client. Otherwise, also if a [MinHold] keeps the lock of one that is
// unlocked, they get an error that matches [ErrRefused].
const MaxSharers = driver.MaxSharers

// Label sets Options.Label for one call. "": the Client's label.
func Label(label string) Option {
	return optionFunc(func(s *settings) { s.Label = label })
}

// settingsFor merges the client's options with those of one call, and checks the
// result against the bounds of the backend.
func (c *Client) settingsFor(opts []Option) (settings, error) {
	s := settings{Asked: Asked{TTL: c.opts.TTL, MaxHold: c.opts.MaxHold}}
	if len(opts) > 0 {
		s = s.with(opts)
	}
	backend, longest := c.guarantees.Backend, c.guarantees.MaxMinHold
	lo, hi := c.guarantees.TTLBounds()
	if s.TTL == 0 && !s.ttlGiven {
		s.TTL = min(max(DefaultTTL, lo), hi)
	}
	switch {
	case s.TTL < lo || s.TTL > hi:
		return s, invalid("a TTL of %v is outside the bounds of backend %s: give one from %v to %v (%w)",
			s.TTL, backend, lo, hi, errors.ErrUnsupported)
	case s.MaxHold < minMaxHold && (s.MaxHold != 0 || s.holdGiven):
		return s, invalid("a MaxHold of %v is not possible: give at least %v, or leave it out for no bound", s.MaxHold,
			minMaxHold)
	case s.MaxWait != nil && *s.MaxWait < 0:
		return s, invalid("a MaxWait of %v is not possible: give a positive duration, 0 for no wait, or leave it out "+
			"for no bound", *s.MaxWait)
	case s.MinHold < 0:
		return s, invalid("a MinHold of %v is not possible: give a positive duration", s.MinHold)
	case s.MinHold > 0 && longest == 0:
		return s, fmt.Errorf("backend %s cannot keep a lock without its client, as MinHold asks: %w", backend,
			errors.ErrUnsupported)
	case s.MinHold > longest:
		return s, invalid("a MinHold of %v is more than backend %s can do: give at most %v (%w)", s.MinHold, backend,
			longest, errors.ErrUnsupported)
	case s.MaxHold != 0 && s.MinHold > s.MaxHold:
		return s, invalid("a MinHold of %v is more than the MaxHold of %v: give a shorter one", s.MinHold, s.MaxHold)
	case s.Shared && c.guarantees.Shared == SharingNone:
		return s, fmt.Errorf("backend %s has no shared locks, as Shared asks for: %w", backend, errors.ErrUnsupported)
	case s.Label != "":
		return s, checkLabel("Label", s.Label)
	}
	s.Label = c.opts.Label // which is checked
	return s, nil
}

// with is a separate function so that settings move to the heap only if there are options.
func (s settings) with(opts []Option) settings {
	for _, o := range opts {
		if o != nil {
			o.apply(&s)
		}
	}
	return s
}

// minMaxHold is the shortest MaxHold: even after subtracting the drift, it exceeds a timer's error.
const minMaxHold = 10 * time.Millisecond

// check reports options that are wrong for every backend.
func (o *Options) check() error {
	switch {
	case o.TTL < 0 || o.TTL > driver.MaxTTL || o.TTL > 0 && o.TTL < driver.MinTTL:
		return invalid("Options.TTL is %v: give one from %v to %v", o.TTL, driver.MinTTL, driver.MaxTTL)
	case o.MaxHold < 0 || o.MaxHold > 0 && o.MaxHold < minMaxHold:
		return invalid("Options.MaxHold is %v: give at least %v, or 0 for no bound", o.MaxHold, minMaxHold)
	case o.TokenBase > MaxToken:
		return invalid("Options.TokenBase is %d: give at most %d, so that no token overflows", o.TokenBase,
			uint64(MaxToken))
	case len(o.Prefix) > MaxPrefixLen:
		return invalid("Options.Prefix has %d bytes: the limit is %d", len(o.Prefix), MaxPrefixLen)
	case !utf8.ValidString(o.Prefix):
		return invalid("Options.Prefix %q is not valid UTF-8", o.Prefix)
	}
	return checkLabel("Options.Label", o.Label)
}

func checkLabel(what, label string) error {
	if len(label) > MaxLabelLen {
		return invalid("%s has %d bytes: the limit is %d", what, len(label), MaxLabelLen)
	}
	for _, r := range label {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return invalid("%s %q contains a character that cannot be printed", what, label)
		}
	}
	return nil
}

// invalid is fmt.Errorf for an error that matches ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

func checkName(name string) error {
	switch {
	case name == "":
		return invalid("the name is empty: give 1 to %d bytes of UTF-8", MaxNameLen)
	case len(name) > MaxNameLen:
		return invalid("the name has %d bytes: the limit is %d", len(name), MaxNameLen)
	case !utf8.ValidString(name):
		return invalid("the name is not valid UTF-8")
	}
	return nil
}

// defaultLabel describes this process.
var defaultLabel = sync.OnceValue(func() string { return label.Of(os.Args, MaxLabelLen) })
