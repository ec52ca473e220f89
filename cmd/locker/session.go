package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/label"
	"github.com/golockers/locker/slots"
)

// session is one locker run: from the wait for the lock to its return.
type session struct {
	flags   *runFlags
	name    string
	signals chan os.Signal
	notes   notes

	client   atomic.Pointer[locker.Client] // nil until the service has answered
	lease    *locker.Lease
	env      []string      // what the command is told of its slot
	woken    chan struct{} // the lease may have been renewed
	granted  time.Time
	renewed  atomic.Pointer[error]  // how the last renewal went
	inTheWay atomic.Pointer[string] // what the wait for the lock is waiting for; nil: the first answer
	death    death                  // how the command died, if its status is the one to report
}

// signalError is why a wait is over when a signal ended it.
type signalError struct{ sig os.Signal }

func (e *signalError) Error() string { return "ended by signal: " + e.sig.String() }

// acquire opens the backend and waits for the lock. Signals that end programs
// end the wait, and then nothing is left behind.
func (s *session) acquire(command []string) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	stop := s.watchWait(cancel)
	err := s.lock(ctx, command)
	stop()
	if err == nil && ctx.Err() != nil {
		// Granted at the same moment.
		err = context.Cause(ctx) // close unlocks
	}
	if err == nil {
		return nil
	}
	var by *signalError
	ended := errors.As(context.Cause(ctx), &by)
	if ended {
		signal.Reset() // a second signal ends locker at once
	}
	s.close(clearTimeout)
	if ended {
		return &exitError{status: statusSignal + int(by.sig.(syscall.Signal)), death: death{sig: by.sig}}
	}
	return err
}

// watchWait cancels the wait when a signal says so, until stop is called.
func (s *session) watchWait(cancel context.CancelCauseFunc) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		long := time.NewTicker(time.Second)
		defer long.Stop()
		said := ""
		for {
			select {
			case sig := <-s.signals:
				if endsWait(sig) {
					cancel(&signalError{sig})
					return
				}
			case <-long.C:
				text := *cmp.Or(s.inTheWay.Load(), &noAnswer)
				if text == said || s.flags.quiet {
					continue
				}
				if said = text; text == heldByAnother {
					text = s.holder()
				}
				s.notes.say("waiting for %q: %s", s.name, text)
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// shortestOpening is the time that a lock service has for its first answer, and then for
// the first attempt, however short --wait is.
const shortestOpening = time.Second

// The pauses between two attempts to open a service that is out of reach.
const (
	firstReopen = 100 * time.Millisecond
	lastReopen  = 2 * time.Second
)

// open opens the lock service. It waits for the end of an outage as Lock does.
func (s *session) open(ctx context.Context, command []string) (client *locker.Client, err error) {
	began, patience := time.Now(), s.flags.patience()
	if s.flags.wait > 0 {
		// --wait also bounds how long the service may take to answer. But a very short
		// --wait must not make a service that is well look out of reach.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, max(s.flags.wait, shortestOpening))
		defer cancel()
	}
	for n := 0; ; n++ {
		last := err
		client, err = open(ctx, &s.flags.backend, &locker.Options{
			// A service with sessions makes them for this TTL.
			TTL:   s.flags.ttl,
			Label: label.Of(command, locker.MaxLabelLen), Trace: s.trace(), Logger: slog.New(warnings{s.notes}),
		})
		if err != nil && ctx.Err() != nil && last != nil {
			return nil, last // it says why; this attempt was cut short by --wait
		}
		left := patience - time.Since(began)
		if !errors.Is(err, locker.ErrUnavailable) || left <= 0 {
			return client, err
		}
		s.waitsFor(locker.Event{Err: err, Left: left})
		pause := clock.Jitter(clock.BackOff(n, firstReopen, lastReopen))
		if clock.Sleep(ctx, min(pause, left)) != nil {
			return nil, err
		}
	}
}

// lock waits for the lock.
func (s *session) lock(ctx context.Context, command []string) error {
	f := s.flags
	deadline := time.Now().Add(f.wait)
	client, err := s.open(ctx, command)
	if err != nil {
		return err
	}
	s.client.Store(client)
	if f.outlive && client.Guarantees().Exclusion != locker.ExclusionKernel {
		return usage(errors.New("--outlive: only a lock of the file backend lasts without locker: leave " +
			"the flag out, or give --backend file:///DIR"))
	}
	lock, tryLock := client.Lock, client.TryLock
	if f.slots > 0 {
		lock, tryLock = s.oneOf(slots.Lock), s.oneOf(slots.TryLock)
	} else if err := s.heldOutside(ctx); err != nil {
		return err
	}
	opts := f.options()
	if f.minHold != 0 {
		opts = append(opts, locker.MinHold(f.minHold))
	}
	if f.tries() {
		ctx, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		s.lease, err = tryLock(ctx, s.name, opts...)
	} else {
		if f.given("wait") {
			opts = append(opts, locker.Patience(f.wait))
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, max(time.Until(deadline), min(f.wait, shortestOpening)))
			defer cancel()
		}
		s.lease, err = lock(ctx, s.name, opts...)
	}
	if errors.Is(err, locker.ErrHeld) && (f.try || f.given("wait") && f.wait <= f.lockTTL()) &&
		watchedByOne(client) {
		err = fmt.Errorf("%w; if its holder is dead, this service sees it only after somebody has waited for the "+
			"holder's whole TTL: use a --wait of more than that", err)
	}
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return usage(err) // the service does not support this TTL, --min-hold or --shared
	case err != nil:
		return failure(err)
	}
	s.granted = time.Now()
	return nil
}

type lockFunc = func(ctx context.Context, name string, opts ...locker.Option) (*locker.Lease, error)

type slotFunc func(context.Context, locker.Locker, string, int, ...locker.Option) (*slots.Slot, error)

// oneOf locks one of the --slots, and tells the command which one it is.
func (s *session) oneOf(lock slotFunc) lockFunc {
	return func(ctx context.Context, name string, opts ...locker.Option) (*locker.Lease, error) {
		slot, err := lock(ctx, s.client.Load(), name, s.flags.slots, opts...)
		if err != nil {
			return nil, err
		}
		s.env = []string{slotEnv + "=" + strconv.Itoa(slot.Number)}
		return slot.Lease, nil
	}
}

// heldOutside reports a name that an outer locker run holds for the command that
// this locker is part of: it would wait for itself. The label and the token must be the same
// as then: a process that inherited the environment may have outlived that command, and in
// containers of one host name all labels may be the same. Two services tell neither: what
// the environment says has to do.
func (s *session) heldOutside(ctx context.Context) error {
	outer := outerLocks()[s.name]
	if len(outer) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	state, err := s.client.Load().Inspect(ctx, s.name)
	byOuter := func(label string) bool { return strings.HasPrefix(label, outer[0]) } // and on which services
	// Beside the name of a second service, the token is that of one of them, and not the command's.
	other := len(state.Label) <= len(outer[0]) && state.Token != 0 && len(outer) > 1 &&
		outer[1] != strconv.FormatUint(state.Token, 10)
	tells := !errors.Is(err, errors.ErrUnsupported)
	if tells && (err != nil || other || !byOuter(state.Label) && !slices.ContainsFunc(state.Sharing, byOuter)) {
		return nil // where the service does not know, locker waits
	}
	return &exitError{status: statusHeld, err: fmt.Errorf("%q is held by the locker run that started this "+
		"one, which would wait for itself: nothing is reentrant", s.name)}
}

// hold runs the command and returns its exit status, or locker's own status if
// something went wrong, and an error to report.
func (s *session) hold(path string, command []string) (int, error) {
	holdStill(s.signals)
	j := &job{session: s}
	status, err := j.run(path, command)
	switch {
	case j.unrun != nil:
		s.giveBack()
		return status, err
	case j.remains:
		return status, err // without an unlock, which close sends, too
	case err != nil:
		// The lock is lost: nobody is kept out for long.
		s.close(lostTimeout)
		return status, err
	}
	err = s.unlock()
	s.close(clearTimeout)
	switch {
	case errors.Is(err, locker.ErrLost):
		return statusLost, fmt.Errorf("%w; the command had ended by itself", err)
	case err != nil:
		// The command has done its work while the lock was held.
		err = fmt.Errorf("warning: %s", plain(err))
	}
	s.death = j.proc.death()
	return status, err
}

// How long locker waits for the service at the end.
const (
	clearTimeout = 5 * time.Second
	lostTimeout  = time.Second // the TTL has ended the lock, or is about to
)

func (s *session) unlock() error {
	ctx, cancel := context.WithTimeout(context.Background(), clearTimeout)
	defer cancel()
	return s.lease.Unlock(ctx)
}

// giveBack ends the lease of a command that was never run, whatever --min-hold says.
func (s *session) giveBack() {
	ctx, cancel := context.WithTimeout(context.Background(), clearTimeout)
	defer cancel()
	_ = s.lease.GiveBack(ctx)
	s.close(clearTimeout)
}

// close waits up to timeout until nothing is left in the service. Leftovers end with
// their TTL.
func (s *session) close(timeout time.Duration) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if s.lease != nil {
			_ = s.unlock() // once more, or for a lease that is lost
		}
		if client := s.client.Load(); client != nil {
			_ = client.Close()
		}
	}()
	select {
	case <-closed:
	case <-time.After(timeout):
	}
}

// trace reports on stderr what happens to the lock.
func (s *session) trace() *locker.Trace {
	return &locker.Trace{
		Waiting: func(_ context.Context, e locker.Event) { s.waitsFor(e) },
		Renewed: func(_ context.Context, e locker.Event) {
			select {
			case s.woken <- struct{}{}: // the guard has to know at once
			default:
			}
			if errors.Is(e.Err, locker.ErrClosed) {
				return // by us: the command has ended
			}
			before := s.renewed.Swap(&e.Err)
			switch failed := before != nil && *before != nil; {
			case errors.Is(e.Err, locker.ErrLost): // the job reports it
			case e.Err != nil && !failed:
				s.notes.say("cannot renew %q, trying again: %s", e.Name, plain(e.Err))
			case e.Err == nil && failed:
				s.notes.say("renewed %q again", e.Name)
			}
		},
		TakenBack: func(_ context.Context, e locker.Event) {
			if e.Err != nil {
				s.notes.say("warning: %q may stay locked until its TTL is over: %s", e.Name, plain(e.Err))
			}
		},
	}
}

const heldByAnother = "another holds it"

var noAnswer = "the lock service has not answered yet"

// holder says who holds the lock, if the service tells soon.
func (s *session) holder() string {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if st, err := s.client.Load().Inspect(ctx, s.name); err == nil && st.Label != "" {
		return "held by " + printable(st.Label)
	}
	return heldByAnother
}

func (s *session) waitsFor(e locker.Event) {
	text := heldByAnother
	if !errors.Is(e.Err, locker.ErrHeld) {
		text = fmt.Sprintf("%s; trying until %s", plain(e.Err), time.Now().Add(e.Left).Format(time.TimeOnly))
	}
	s.inTheWay.Store(&text)
}
