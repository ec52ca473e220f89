package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
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
	began   time.Time

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

// acquire opens the backend and waits for the lock. If a signal ends the wait, nothing is left behind.
func (s *session) acquire(command []string) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	stop := s.watchWait(cancel)
	err := s.lock(ctx, command)
	stop()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx) // it was granted at the same moment: close unlocks
	}
	if err == nil {
		return nil
	}
	var by *signalError
	ended := errors.As(context.Cause(ctx), &by)
	if ended {
		signal.Reset() // a second signal ends locker at once
	}
	bound := clearTimeout
	if s.flags.tries() && !ended {
		bound = max(tryClear, min(bound, time.Until(s.began.Add(tryTimeout))))
	}
	s.close(bound)
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
					text = s.holder(context.Background())
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

// shortestOpening is the time that a lock service has for its first answer, however short --wait is.
const shortestOpening = time.Second

// outageTimeoutOf finds the parameter in a URL, which overrides Options as --wait overrides it.
var outageTimeoutOf = regexp.MustCompile(`[?&]outage_timeout=[^&#\s]*`)

// tryTimeout is the longest that a run takes which does not wait, until COMMAND starts or locker ends. A part of it is
// for taking back a lock that was asked for without an answer: --min-hold would keep it, and COMMAND has not run.
const (
	tryTimeout = openTimeout
	tryClear   = 3 * time.Second // a little more than Close spends on that
)

// The pauses between two attempts to open a service that is out of reach.
const (
	firstReopen = 100 * time.Millisecond
	lastReopen  = 2 * time.Second
)

// open opens the lock service. It waits for the end of an outage as Lock does.
func (s *session) open(ctx context.Context, command []string) (client *locker.Client, err error) {
	began, timeout, backend := time.Now(), s.flags.outageTimeout(), s.flags.backend
	if s.flags.wait > 0 {
		// --wait also bounds how long the service may take to answer.
		bounded, cancel := context.WithTimeout(ctx, max(s.flags.wait, shortestOpening))
		defer cancel()
		ctx = bounded
		address, _ := backend.address()
		backend = backendFlag(outageTimeoutOf.ReplaceAllStringFunc(address, func(parameter string) string {
			key, value, _ := strings.Cut(parameter, "=")
			if d, err := clock.ParseDuration(value); value != "none" && (err != nil || d <= 0) {
				return parameter // which is refused
			}
			return key + "=" + s.flags.wait.String()
		}))
	}
	for n := 0; ; n++ {
		last := err
		client, err = open(ctx, &backend, &locker.Options{
			// A service with sessions makes them for this TTL.
			TTL: s.flags.ttl, OutageTimeout: s.flags.wait,
			Label: label.Of(command, locker.MaxLabelLen), Trace: s.trace(), Logger: slog.New(warnings{s.notes}),
		})
		if err != nil && ctx.Err() != nil && last != nil {
			return nil, last // it says why; this attempt was cut short by --wait
		}
		left := timeout - time.Since(began)
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
	if f.tries() {
		bounded, cancel := context.WithDeadlineCause(ctx, s.began.Add(tryTimeout-tryClear), errNoAnswer)
		defer cancel()
		ctx = bounded
	}
	client, err := s.open(ctx, command)
	if err != nil {
		return err
	}
	s.client.Store(client)
	if err := f.refused(client); err != nil {
		return usage(err)
	}
	lock, tryLock := client.Lock, client.TryLock
	if f.slots > 0 {
		lock, tryLock = s.oneOf(slots.Lock), s.oneOf(slots.TryLock)
	} else if err := s.heldOutside(ctx); err != nil {
		return err
	}
	opts := f.options()
	if f.tries() {
		s.lease, err = tryLock(ctx, s.name, opts...)
	} else {
		if f.given("wait") {
			opts = append(opts, locker.MaxWait(max(0, time.Until(deadline))))
		}
		s.lease, err = lock(ctx, s.name, opts...)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return usage(err) // the service does not support this TTL
	}
	if err != nil {
		return s.refusal(ctx, client, err)
	}
	s.granted = time.Now()
	return nil
}

// errNoAnswer is why a run that does not wait has ended without an answer.
var errNoAnswer = fmt.Errorf("%w: no answer within %v", locker.ErrUnavailable, tryTimeout-tryClear)

// refusal is the error of a lock that was not granted. It says who holds it.
func (s *session) refusal(ctx context.Context, client *locker.Client, err error) *exitError {
	e := unanswered(ctx, err)
	if e.status != statusHeld {
		return e
	}
	text := fmt.Sprintf("%q is ", s.name)
	if s.flags.slots > 0 {
		text = fmt.Sprintf("all %d slots of %q are ", s.flags.slots, s.name)
	}
	text += s.holder(context.WithoutCancel(ctx))
	if (s.flags.try || s.flags.given("wait") && s.flags.wait <= s.flags.lockTTL()) && watchedByOne(client) {
		text += "; if its holder is dead, this service sees it only after somebody has waited for the holder's " +
			"whole TTL: use a --wait of more than that"
	}
	e.err = errors.New(text)
	return e
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

// heldOutside reports a name that an outer locker run holds for the command that this locker is part of: it
// would wait for itself. The label and the token must be the same as then: a process that inherited the
// environment may have outlived that command, and in containers of one host name all labels may be the same.
// Two services tell neither: what the environment says has to do.
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
		return status, err // without an unlock, which close sends, too; the guard stays with them
	}
	defer j.proc.dismiss() // until then, the guard frees the lock of a locker that is killed
	if err != nil {
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

// close waits up to timeout until nothing is left in the service. Leftovers end with their TTL.
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
				end := "TTL"
				if s.flags.minHold > 0 {
					end = "--min-hold or TTL"
				}
				s.notes.say("warning: %q may stay locked until its %s is over: %s", e.Name, end, plain(e.Err))
			}
		},
	}
}

const heldByAnother = "held by another"

var noAnswer = "the lock service has not answered yet"

// mostHolders is how many holders of slots one line names.
const mostHolders = 8

// holder says who holds the lock, or the slots, if the service tells soon.
func (s *session) holder(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	names, by := []string{s.name}, []string{}
	for i := range s.flags.slots {
		names = append(names[:i], s.name+"/"+strconv.Itoa(i))
	}
	for _, name := range names {
		if st, err := s.client.Load().Inspect(ctx, name); err == nil && heldBy(st) != "" {
			by = append(by, holding(st))
		}
	}
	if len(by) == 0 {
		return heldByAnother
	}
	if others := len(by) - mostHolders; others > 0 {
		by = append(by[:mostHolders], fmt.Sprintf("and %d others", others))
	}
	return "held by " + strings.Join(by, "; ")
}

func (s *session) waitsFor(e locker.Event) {
	text := heldByAnother
	if !errors.Is(e.Err, locker.ErrHeld) {
		text = fmt.Sprintf("%s; trying until %s", plain(e.Err), time.Now().Add(e.Left).Format(time.TimeOnly))
	}
	s.inTheWay.Store(&text)
}
