package driver

import (
	"context"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// Poll waits between one caller's requests to a [Backend] whose service has no queue: for a wake-up of
// its [Notifier] and, because wake-ups can be lost, for a time that grows, but not longer than the
// holder's lease lasts. It is for the engine and for backends that are made of others. The zero value
// is ready to use.
type Poll struct {
	// Go starts a goroutine, for a caller that waits for the goroutines it has started. nil: the go
	// statement.
	Go func(func())

	refused *Refusal      // the last answer; nil: the holder is unknown
	tries   int           // answers of one kind in a row
	wake    chan struct{} // sent to by the backend
	reply   chan func()   // receives what Notify returned, once, nil if it failed; nil: no Notify is in flight
	cancel  context.CancelFunc
	stop    func() // ends what Notify began; nil: there is none
}

// Wait returns nil when it is time to ask b for name again after the last answer given to
// [Poll.Answered], or the error of ctx. others is how many callers of this client wait for other names;
// atMost bounds the time, unless it is 0.
func (p *Poll) Wait(ctx context.Context, b Backend, name string, others int, atMost time.Duration) error {
	delay := p.delay(others)
	if atMost > 0 {
		delay = min(delay, atMost)
	}
	if p.refused != nil {
		p.listen(ctx, b, name)
	}
	return p.sleep(ctx, delay)
}

// Answered records the answer to an attempt that was not granted: refused, or nil if the service could
// not be asked. It returns how many answers of this kind have come in a row.
func (p *Poll) Answered(refused *Refusal) int {
	if (p.refused != nil) != (refused != nil) {
		p.tries = 0
	}
	p.refused = refused
	p.tries++
	return p.tries
}

// End ends the wake-ups. The Poll must not be used afterwards.
func (p *Poll) End() {
	if p.reply != nil {
		p.cancel()
	}
	if p.stop != nil {
		p.stop()
	}
}

// The pauses between attempts.
const (
	firstPoll  = 5 * time.Millisecond // nothing reports when the lock is free
	lastPoll   = 500 * time.Millisecond
	backupPoll = 10 * time.Second // Notify reports it; the poll covers what it misses
	lastBackup = time.Minute      // with a hundred thousand waiters, who together ask some thousand times a second
	firstRetry = 20 * time.Millisecond
	lastRetry  = time.Second
	expirySlop = 10 * time.Millisecond // spreads the waiters for one expiry
)

// delay is how long to wait for a wake-up before asking without one.
func (p *Poll) delay(others int) time.Duration {
	if p.refused == nil {
		return clock.Jitter(clock.BackOff(p.tries-1, firstRetry, lastRetry))
	}
	d := clock.Jitter(max(backupPoll, min(time.Duration(others)*time.Millisecond, lastBackup)))
	if p.stop == nil {
		d = clock.Jitter(clock.BackOff(p.tries-1, firstPoll, lastPoll))
	}
	if left := p.refused.Remaining; left > 0 && left < d {
		d = min(d, left+time.Millisecond+clock.UpTo(expirySlop))
	}
	if p.refused.AskWithin > 0 {
		d = min(d, p.refused.AskWithin)
	}
	return d
}

// listen calls Notify in the background, once. Polling continues until Notify has returned, however
// long that takes: progress never depends on it (R14).
func (p *Poll) listen(ctx context.Context, b Backend, name string) {
	notifier, ok := b.(Notifier)
	if !ok || p.stop != nil || p.reply != nil {
		return
	}
	wake, reply := make(chan struct{}, 1), make(chan func())
	ctx, p.cancel = context.WithCancel(ctx)
	p.wake, p.reply = wake, reply
	run := p.Go
	if run == nil {
		run = func(f func()) { go f() }
	}
	run(func() {
		stop, err := notifier.Notify(ctx, name, func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		})
		if err != nil {
			stop = nil
		}
		select {
		case reply <- stop:
		case <-ctx.Done():
			if stop != nil {
				stop()
			}
		}
	})
}

// sleep waits for a wake-up or for the delay.
func (p *Poll) sleep(ctx context.Context, delay time.Duration) error {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for {
		select {
		case stop := <-p.reply:
			p.cancel()
			if p.reply, p.stop = nil, stop; stop == nil {
				continue // polling continues, and Notify is tried again
			}
			// A release before that sent no wake-up: ask now (R14).
		case <-p.wake:
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		return nil
	}
}
