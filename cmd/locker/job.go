package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// job is the command that runs under a lease. The guard starts and ends the command; the job tells
// the guard when, and people what happens.
type job struct {
	*session
	name  string // of the command
	proc  *process
	grace time.Duration // from SIGTERM to the end of the lease

	terminate, kill time.Time // what the guard was told
	reason          error     // why the command is being ended; nil while it may go on
	overdue         time.Time // since when the guard should have sent SIGKILL; zero: it is not time yet, or was killed
	letGo           bool      // the command was let go, and may have run
	begun           bool      // it runs, or has run
	ending          bool      // the guard has told it to end
	over            bool      // it has ended, or never will run
	unrun           error     // why it was certainly never run
	remains         bool      // processes of the command had not ended when locker stopped waiting for them
}

const (
	// maxGrace is the longest time that a command gets to end by itself, taken from the end of the lease.
	maxGrace = 10 * time.Second
	// shortGrace is the time that it gets when the lock is already gone.
	shortGrace = 100 * time.Millisecond
	// lookEvery bounds how long it takes to notice a step of the wall clock (a machine
	// that slept), or that locker has come to the foreground of its terminal.
	lookEvery = time.Second
	// orphansEnd bounds the wait for the end of a group that was killed: the remains of
	// processes that nobody waits for stay in the group.
	orphansEnd = 10 * time.Second
	// lateGuard is the longest time that a guard gets to report that it sends SIGKILL.
	lateGuard = 50 * time.Millisecond
)

// report is what a guard tells.
type report struct{ What, Value int32 }

const (
	reportAtGate     = iota + 1 // the command, with this process ID, waits to be let go
	reportBegun                 // it runs
	reportUnrun                 // it was not run, for this errno, 0: it was too late, or ESRCH: its process had ended
	reportStopped               // it was stopped by this signal
	reportEnded                 // it has ended like this
	reportTerminated            // SIGTERM was sent
	reportKilled                // SIGKILL is being sent
	reportAllEnded              // nothing is left of all that the command has started
)

// errTooLate is why a command was not run by a guard.
var errTooLate = errors.New("could not be kept until the command began")

// launch is what it takes to start a command.
type launch struct {
	path string
	args []string
	env  []string
	lock *os.File // the lock itself, for the command to inherit; nil if it is not a file

	// nested: an outer locker has to be able to end the command together with its own
	// command. It can kill only this process.
	nested bool
	// outlive: the command goes on, with the lock, if locker is killed.
	outlive bool
}

// run runs the command and returns its exit status, or that of locker with an error.
func (j *job) run(path string, command []string) (status int, err error) {
	j.name = command[0]
	if j.schedule(); j.reason != nil {
		j.unrun = j.reason
		return j.refused()
	}
	var file *os.File
	j.lease.As(&file)
	j.proc, err = start(launch{
		path: path, args: command, env: append(environment(j.lease, command[0]), j.env...),
		lock: file, nested: nested(), outlive: j.flags.outlive,
	})
	if err != nil {
		j.unrun = err
		return j.refused()
	}
	j.watch()
	if j.unrun != nil {
		j.proc.dismiss()
		j.proc.finish()
		return j.refused()
	}
	j.end()
	if err = j.lost(); err != nil {
		return statusLost, err
	}
	return j.proc.status, nil
}

// refused says why the command was never run.
func (j *job) refused() (status int, err error) {
	var by *signalError
	switch {
	case errors.As(j.unrun, &by):
		signal.Reset() // a second signal ends locker at once
		j.death = death{sig: by.sig}
		return statusSignal + int(by.sig.(syscall.Signal)), nil
	case j.reason != nil:
		return statusLost, fmt.Errorf("%w; %s was not run", j.reason, j.name)
	case errors.Is(j.unrun, errTooLate):
		return statusLost, fmt.Errorf("%q %w; %s was not run", j.lease.Name(), j.unrun, j.name)
	}
	return statusCannotRun, fmt.Errorf("%s: cannot be executed: %w", j.name, j.unrun)
}

// schedule sets when the command has to end: early enough that the kernel has ended it
// when the lease is over, or at once if the lock is already gone.
func (j *job) schedule() {
	until, err := j.lease.Until(), j.lease.Err()
	switch {
	case err != nil && j.reason == nil:
		// A lock that is gone early leaves a short grace. A lease that has ended by its own time has had it.
		j.reason = err
		j.terminate, j.kill = time.Now(), earlier(until.Add(-j.grace/10), time.Now().Add(shortGrace))
	case err != nil:
		j.kill = earlier(j.kill, time.Now().Add(shortGrace))
	case j.reason == nil:
		// A share of the time that the lease had left when it had most.
		j.grace = max(j.grace, min(left(until)/6, maxGrace))
		j.terminate, j.kill = until.Add(-j.grace), until.Add(-j.grace/10)
	}
}

// watch returns when the command has ended.
func (j *job) watch() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	over := j.lease.Done()
	var early []os.Signal // for the command: they wait until it runs
	for {
		signals := j.signals
		if j.letGo && !j.begun {
			signals = nil
		}
		select {
		case <-over:
			over = nil
		case <-j.woken:
		case r, alive := <-j.proc.reports:
			if alive {
				j.heard(r)
			} else {
				j.guardEnded()
			}
		case sig := <-signals:
			if !j.begun && endsWait(sig) {
				j.unrun = &signalError{sig}
				return
			}
			early = append(early, sig)
		case <-timer.C:
		}
		if j.over {
			return // before another look at the lease: how the command has ended is known
		}
		for j.begun && len(early) > 0 {
			sig := early[0]
			early = early[1:]
			j.step() // first: the machine may just have woken up, with the lease over
			if j.reason == nil || !resumes(sig) {
				j.proc.forward(sig, j.notes)
			}
		}
		timer.Reset(j.step())
		if j.reason != nil && !j.letGo {
			j.unrun = j.reason
			return
		}
	}
}

// step tells the guard what it has to know, and returns the time until the next step.
func (j *job) step() time.Duration {
	j.schedule()
	j.proc.endAt(j.terminate, j.kill)
	if j.reason == nil {
		j.proc.look()
	}
	wait := lookEvery
	// A guard that cannot run (it is traced, or frozen) is killed before the lease is over, and its command with it.
	margin := min(lateGuard, j.grace/20)
	switch {
	case !j.letGo || left(j.kill) > 0:
		j.overdue = time.Time{}
	case j.overdue.IsZero(): // locker may have been stopped, too
		j.overdue, wait = time.Now(), margin
	case time.Since(j.overdue) >= margin:
		j.proc.giveUp()
	default:
		wait = margin
	}
	for _, t := range []time.Time{j.terminate, j.kill} {
		if d := left(t); !t.IsZero() && d > 0 {
			wait = min(wait, d)
		}
	}
	return wait
}

// heard hears what the guard reports, and tells people what it has done.
func (j *job) heard(r report) {
	name := j.lease.Name()
	switch {
	case r.What == reportAtGate:
		if j.step(); j.reason == nil {
			j.letGo = true
			j.proc.letGo(int(r.Value))
		}
	case r.What == reportBegun:
		j.begun = true
	case r.What == reportUnrun:
		switch j.over, j.unrun = true, errTooLate; syscall.Errno(r.Value) {
		case 0:
		case syscall.ESRCH:
			j.unrun = errors.New("its process was ended before it began")
		default:
			j.unrun = syscall.Errno(r.Value)
		}
	case r.What == reportEnded:
		if j.over = true; !j.ending {
			j.reason = nil // it has ended by itself
		}
		j.proc.end(r.Value)
	case r.What == reportStopped && j.reason == nil:
		j.proc.stoppedBy(r.Value, j.notes)
	case r.What == reportKilled:
		if j.reason == nil {
			j.reason = j.why()
		}
		j.over = true // what is left may not end at once, or never: end waits for it
		j.notes.say("%q: %s", name, saidKill)
	case r.What == reportTerminated && j.reason != nil:
		j.ending = true
		grace := shortGrace
		if left(j.kill) <= 0 {
			grace = 0
		}
		j.notes.say("%s: %s in %v", plain(j.reason), saidTerminate, grace)
	case r.What == reportTerminated:
		j.ending, j.reason = true, j.why()
		j.notes.say("%q ends in %v: %s: %s in %v", name,
			round(max(0, left(j.lease.Until()))), plain(j.reason), saidTerminate, round(max(0, left(j.kill))))
	}
}

// why says why a lease that is not lost yet is not kept.
func (j *job) why() error {
	limit, limitedBy := j.flags.longest()
	switch err := j.renewed.Load(); {
	case err != nil && *err != nil:
		return fmt.Errorf("it cannot be renewed: %s", plain(*err))
	case left(j.kill) <= 0:
		return errors.New("it was not renewed in time: locker was stopped, or the machine is too busy")
	case limit > 0 && left(j.granted.Add(limit)) <= 2*j.grace:
		return fmt.Errorf("%s is reached", limitedBy)
	}
	return errors.New("it is not renewed any more")
}

// guardEnded ends the command, if it runs: without a guard, it would outlive a locker that is killed.
func (j *job) guardEnded() {
	if j.over = true; !j.letGo {
		j.unrun = errors.New("its guard ended at once")
		return
	}
	if j.reason = errors.New("its guard was killed"); !j.overdue.IsZero() {
		j.reason = errors.New("its guard did not end the command in time")
	}
	j.notes.say("%q: %v: %s", j.lease.Name(), j.reason, saidKill)
}

// end clears up after the command.
func (j *job) end() {
	defer j.proc.finish()
	if j.reason == nil && !j.proc.toldToEnd() {
		return
	}
	// Processes that the command has started may still run, for a while also after SIGKILL
	// (a disk that is slow). Meanwhile the lease is renewed: the bound is that of now.
	bound := max(time.Second, min(left(j.lease.Until()), orphansEnd))
	if j.remains = !j.proc.endAll(time.Now().Add(bound)); j.remains {
		j.notes.say("%q: processes of the command have not ended yet after SIGKILL: the lock is not "+
			"released, and ends with its TTL", j.lease.Name())
	}
}

// lost returns an error if the lock was lost while the command ran.
func (j *job) lost() error {
	if j.reason == nil {
		if err := j.lease.Err(); err != nil {
			return fmt.Errorf("%w; the command had ended by then", err)
		}
		return nil
	}
	return fmt.Errorf("%q could not be kept: the command was ended", j.lease.Name())
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
