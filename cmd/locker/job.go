package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/clock"
)

// job is the command that runs under a lease, and the watch over both.
type job struct {
	lease   *locker.Lease
	notes   *notes
	signals <-chan os.Signal
	renewal *renewal
	outlive bool

	proc      *process
	limit     time.Time     // when the longest hold is over; zero: never
	limitedBy string        // the setting that limits it
	grace     time.Duration // from SIGTERM to the end of the lease
	reason    error         // why the command is being ended; nil while it may go on
	gone      bool          // the service has said that the lock is gone
	killAt    time.Time     // when SIGKILL follows; set with reason
	killed    bool
}

const (
	// maxGrace is the longest time that a command gets to end by itself, taken from
	// the end of the lease.
	maxGrace = 10 * time.Second
	// shortGrace is the time that it gets when the lock is already gone.
	shortGrace = 100 * time.Millisecond
	// lookEvery bounds how long it takes to notice a step of the wall clock (a machine
	// that slept), or that locker has come to the foreground of its terminal.
	lookEvery = time.Second
)

// start starts the command. The grace period is a share of the time that the lease
// has left now.
func (j *job) start(path string, command []string) error {
	until := j.lease.Until()
	if !until.IsZero() {
		j.grace = min(time.Until(until)/6, maxGrace)
	}
	var file *os.File
	j.lease.As(&file)
	proc, err := start(launch{
		path: path, args: command, env: environment(j.lease, command[0]),
		lock: file, until: j.guardTime(until), nested: nested(), outlive: j.outlive,
	})
	j.proc = proc
	return err
}

// killTime is when the command is killed, for a lease that ends at until: early
// enough that the kernel has ended it by then.
func (j *job) killTime(until time.Time) time.Time {
	if until.IsZero() {
		return until
	}
	return until.Add(-j.grace / 10)
}

// guardTime is when the guard kills the command, if locker has not.
func (j *job) guardTime(until time.Time) time.Time {
	if until.IsZero() {
		return until
	}
	return until.Add(-j.grace / 20)
}

// watch returns the command's exit status when the command has ended. It ends the
// command when the lease is over or is about to be.
func (j *job) watch() int {
	timer := time.NewTimer(0)
	defer timer.Stop()
	over := j.lease.Done()
	for {
		select {
		case <-j.proc.ended:
			return j.end()
		case <-over:
			over = nil
		case sig := <-j.signals:
			j.step() // first: the machine may just have woken up, with the lease over
			if j.reason == nil || !resumes(sig) {
				j.proc.forward(sig, j.notes)
			}
		case sig := <-j.proc.stopped:
			j.proc.stoppedBy(sig, j.reason == nil, j.notes)
		case <-timer.C:
		}
		timer.Reset(j.step())
	}
}

// end clears up after the command.
func (j *job) end() int {
	if !j.killed && j.proc.endedByGuard() {
		if j.reason == nil {
			j.reason = errors.New("locker was stopped for too long")
			j.notes.say("%q: %v", j.lease.Name(), j.reason)
		}
		j.notes.say("%q: %s", j.lease.Name(), saidKill)
	}
	if j.reason != nil || j.proc.toldToEnd() {
		// Processes that the command has started may still run.
		j.proc.kill()
	}
	j.proc.finish()
	return j.proc.status
}

// step does what is due, and returns the time until the next step.
func (j *job) step() time.Duration {
	until := j.lease.Until()
	err := j.lease.Err()
	if err != nil && !j.gone {
		j.lose(err)
	}
	if err == nil && !until.IsZero() && j.reason == nil {
		if left(until) <= j.grace {
			j.giveUp(until)
		} else {
			j.proc.mayRunUntil(j.guardTime(until))
		}
	}
	if j.reason == nil {
		j.proc.look()
	}
	switch {
	case j.killed:
	case j.reason != nil:
		if wait := left(j.killAt); wait > 0 {
			return min(wait, lookEvery)
		}
		j.killed = true
		j.proc.kill()
		j.notes.say("%q: %s", j.lease.Name(), saidKill)
	case !until.IsZero():
		return max(0, min(left(until)-j.grace, lookEvery))
	}
	return lookEvery
}

// giveUp tells the command to end while the lease still lasts.
func (j *job) giveUp(until time.Time) {
	j.killAt = j.killTime(until)
	j.reason = errors.New("it is not renewed any more")
	if err := j.renewal.err(); err != nil {
		j.reason = fmt.Errorf("it cannot be renewed: %s", plain(err))
	} else if !j.limit.IsZero() && left(j.limit) <= 2*j.grace {
		j.reason = fmt.Errorf("%s is reached", j.limitedBy)
	}
	j.proc.terminate(true)
	j.notes.say("%q ends in %v: %s: %s in %v",
		j.lease.Name(), round(left(until)), plain(j.reason), saidTerminate, round(left(j.killAt)))
}

// lose ends the command as fast as possible: the lease is over.
func (j *job) lose(err error) {
	j.gone = true
	if j.reason != nil {
		// The command was told to end before. It has time until the service lets others in.
		j.killAt = earlier(j.killAt, time.Now().Add(shortGrace))
		return
	}
	j.reason, j.killAt = err, time.Now().Add(shortGrace)
	j.proc.terminate(false)
	j.notes.say("%s: %s in %v", plain(err), saidTerminate, shortGrace)
}

// lost returns an error if the lock was lost while the command ran.
func (j *job) lost() error {
	if j.reason == nil {
		if err := j.lease.Err(); err != nil {
			return fmt.Errorf("%w; the command had ended by then", err)
		}
		return nil
	}
	return fmt.Errorf("lost %q: the command was ended", j.lease.Name())
}

// left is the time until t by the monotonic or the wall clock, whichever says less:
// the monotonic clock stands still while a machine sleeps (R4).
func left(t time.Time) time.Duration {
	return clock.Left(t, time.Now())
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func round(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

// renewal remembers how the last renewal went.
type renewal struct {
	mu   sync.Mutex
	last error
}

// set notes the latest outcome, and returns whether the one before failed.
func (r *renewal) set(err error) (failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	failed, r.last = r.last != nil, err
	return failed
}

func (r *renewal) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}
