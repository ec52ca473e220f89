package locker

import (
	"cmp"
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

// DefaultTTL (30 s) is the TTL of a lease if no other is given and the backend's bounds
// allow it.
const DefaultTTL = driver.DefaultTTL

// NoPatience is the Patience of a Lock that does not wait for an outage to end.
const NoPatience time.Duration = -1

// Options are the settings of a [Client]. The zero value, or nil, means the
// defaults.
type Options struct {
	// TTL is how long a lock outlives the last renewal of its lease. When a holder
	// dies, others wait for so long; an outage of the service may last almost as long
	// without ending a lease. Leases are renewed every third of the TTL. 0:
	// DefaultTTL.
	TTL time.Duration

	// MaxHold bounds how long a lease lasts, with its renewals but without the wait
	// for it, so that a holder that is stuck but still renews cannot keep everybody
	// out for ever. The lease then ends with ErrLost. 0: no bound.
	MaxHold time.Duration

	// Prefix is put before every name, so that programs that share a service do not
	// use the same name by accident. Two clients compete for a lock if prefix and
	// name, written one after the other, are equal.
	Prefix string

	// Label describes the holder to people, in Inspect. "": program, host and process
	// ID.
	Label string

	// TokenBase is added to every fencing token. After a move to a service whose
	// tokens are smaller, set it above every token that was given out so far, so that
	// resources do not refuse the new tokens. It is at most MaxToken, so that no sum
	// overflows.
	TokenBase uint64

	// Patience is how long Lock waits for an outage to end: if a service is out of
	// reach, too slow or has just been started, Lock asks it again, less and less
	// often, for that long, and then returns ErrUnavailable. It does not apply to Open.
	// 0: as long as the TTL. NoPatience: Lock returns at once, as TryLock always does. A
	// call that waits behind another one of the same Client learns of an outage when the
	// request of that one has failed.
	Patience time.Duration

	// Trace has functions that the Client calls at the events of a lock's life. nil:
	// none.
	Trace *Trace

	// Logger gets warnings about lost leases, renewals that begin to fail, locks that could not
	// be taken back, and outages for whose end a Lock waits. For each lease, one record says
	// that its renewals fail, and one that they succeed again; only the first of an outage has its
	// cause. Each attempt is told to Trace.Renewed. It must not block for long. nil: nothing is logged.
	Logger *slog.Logger

	_ struct{}
}

// Option changes one setting for one call.
type Option interface{ apply(*settings) }

// Asked is what options ask for; zero is what the Client's Options say.
type Asked struct {
	_ struct{}

	TTL, MaxHold, MinHold, Patience time.Duration
	NoRenew, Shared                 bool
	Label                           string
}

// AskedBy returns what opts ask for. It is for packages with calls in which an option has
// another meaning or none, and for a [Locker] of one's own.
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

// Patience sets Options.Patience for one call, with the same values.
func Patience(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.Patience = d })
}

// MinHold makes the service keep the lock for at least that long after the grant,
// even if the lease is unlocked or lost, or its client is closed or dies, before. So,
// of many machines that try once per hour, only one does the work.
//
//	err := locker.TryDo(ctx, l, "hourly report", report, locker.MinHold(55*time.Minute))
//
// The lease is like any other and ends with Unlock, but the lock stays: if the work was not even begun,
// [Lease.GiveBack] ends the lease and frees the lock. If the service cannot keep a lock without
// its client, the error matches [errors.ErrUnsupported].
func MinHold(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.MinHold = d })
}

// NoRenew leaves renewing to the holder, who calls [Lease.Renew]: without that call,
// the lease ends with its TTL.
func NoRenew() Option {
	return optionFunc(func(s *settings) { s.NoRenew = true })
}

// Shared makes a call ask for the name together with others that ask for it so: any
// number of readers up to [MaxSharers] hold it at the same time, each with a lease of
// its own, and a caller without Shared, a writer, holds it alone. A writer that waits
// keeps new readers out, so it gets its turn when those before it have ended. A dead reader
// is in its way for its own TTL at most.
//
// Use it where reading takes long or happens on many hosts at the same time, and a reader
// must not see half of what a writer does: a backup that reads while a migration must wait.
// If readers are short and few, a plain lock is simpler and costs no more. It protects what
// is read as long as the lease lasts: a paused reader may go on reading while a writer writes.
//
// Readers that hold at the same time have the same token, if the [Guarantees] say
// that shared leases have one. A writer's token is greater than that of every reader
// before it, so a guard of package fencing refuses readers that are late, too.
//
// A reader cannot become a writer: two that tried would wait for each other. Unlock,
// lock without Shared, and read again what may have changed between the two. A call
// with the context of a shared lease on the name, as [Do] gives it, is refused with
// an error that matches [ErrInvalid]. Nor should a reader ask for the name Shared once
// more: it would stand behind a writer who waits for its first lease. If the service has
// no shared locks, the error matches [errors.ErrUnsupported].
func Shared() Option {
	return optionFunc(func(s *settings) { s.Shared = true })
}

// MaxSharers (4,096) is how many can hold one name together. More of one client wait in its line;
// one of another client is refused with an error that matches [ErrRefused].
const MaxSharers = driver.MaxSharers

// Label sets Options.Label for one call. "": that of the client.
func Label(label string) Option {
	return optionFunc(func(s *settings) { s.Label = label })
}

// settingsFor merges the client's options with those of one call, and checks the
// result against the bounds of the backend.
func (c *Client) settingsFor(opts []Option) (settings, error) {
	s := settings{Asked: Asked{TTL: c.opts.TTL, MaxHold: c.opts.MaxHold, Patience: c.opts.Patience}}
	if len(opts) > 0 {
		s = s.with(opts)
	}
	backend, longest := c.guarantees.Backend, c.guarantees.MaxMinHold
	lo, hi := c.guarantees.TTLBounds()
	if s.TTL == 0 && !s.ttlGiven {
		s.TTL = min(max(DefaultTTL, lo), hi)
	}
	s.Patience = cmp.Or(s.Patience, s.TTL)
	switch {
	case s.TTL < lo || s.TTL > hi:
		return s, invalid("a TTL of %v is outside of what backend %s can do: give one from %v to %v (%w)",
			s.TTL, backend, lo, hi, errors.ErrUnsupported)
	case s.MaxHold < minMaxHold && (s.MaxHold != 0 || s.holdGiven):
		return s, invalid("a MaxHold of %v is not possible: give at least %v, or leave it out for no bound", s.MaxHold,
			minMaxHold)
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

// with is a function of its own so that settings move to the heap only if there are
// options.
func (s settings) with(opts []Option) settings {
	for _, o := range opts {
		if o != nil {
			o.apply(&s)
		}
	}
	return s
}

// minMaxHold is the shortest MaxHold: without the drift, it is still longer than a
// timer's error.
const minMaxHold = 10 * time.Millisecond

// check reports options that are wrong with every backend.
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
			return invalid("%s %q has something in it that cannot be printed", what, label)
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

// defaultLabel tells of this process.
var defaultLabel = sync.OnceValue(func() string { return label.Of(os.Args, MaxLabelLen) })
