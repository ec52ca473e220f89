package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// job is the command that runs under a lease. The guard ends the command; the job tells
// the guard when, and people what happens.
type job struct {
	*session
	proc  *process
	grace time.Duration // from SIGTERM to the end of the lease

	terminate, kill time.Time // what the guard was told; zero: never
	reason          error     // why the command is being ended; nil while it may go on
	killed          bool
	remains         bool // processes of the command had not ended when locker stopped waiting for them
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
	// orphansEnd bounds the wait for the end of a group that was killed: the remains of
	// processes that nobody waits for stay in the group.
	orphansEnd = 10 * time.Second
)

// The reports of a guard: it has sent SIGTERM, and it sends SIGKILL.
const (
	reportTerminated = 't'
	reportKilled     = 'k'
)

// launch is what it takes to start a command.
type launch struct {
	path string
	args []string
	env  []string
	lock *os.File // the lock itself, for the command to inherit; nil if it is not a file

	terminateAt, killAt time.Time // when the command has to end; zero: never

	// nested: an outer locker has to be able to end the command together with its own
	// command. It can kill only this process.
	nested bool
	// outlive: the command goes on, with the lock, if locker is killed.
	outlive bool
}

// start starts the command. The grace period is a share of the time that the lease
// has left now.
func (j *job) start(path string, command []string) (err error) {
	j.grace = min(time.Until(j.lease.Until())/6, maxGrace)
	j.schedule()
	var file *os.File
	j.lease.As(&file)
	j.proc, err = start(launch{
		path: path, args: command, env: append(environment(j.lease, command[0]), j.env...),
		lock: file, terminateAt: j.terminate, killAt: j.kill, nested: nested(), outlive: j.flags.outlive,
	})
	return err
}

// schedule sets when the command has to end: early enough that the kernel has ended it
// when the lease is over, or at once if the lock is already gone.
func (j *job) schedule() {
	until, err := j.lease.Until(), j.lease.Err()
	switch {
	case err != nil && j.reason == nil:
		j.reason = err
		j.terminate, j.kill = time.Now(), time.Now().Add(shortGrace)
	case err != nil:
		j.kill = earlier(j.kill, time.Now().Add(shortGrace))
	case j.reason == nil:
		j.terminate, j.kill = until.Add(-j.grace), until.Add(-j.grace/10)
	}
}

// watch returns the command's exit status when the command has ended.
func (j *job) watch() int {
	timer := time.NewTimer(0)
	defer timer.Stop()
	over, reports := j.lease.Done(), j.proc.reports
	for {
		select {
		case <-j.proc.ended:
			return j.end()
		case <-over:
			over = nil
		case what, alive := <-reports:
			if alive {
				j.heard(what)
			} else {
				reports = nil
				j.guardEnded()
			}
		case sig := <-j.signals:
			j.step() // first: the machine may just have woken up, with the lease over
			if j.reason == nil || !resumes(sig) {
				j.proc.forward(sig, j.notes)
			}
		case sig := <-j.proc.stopped:
			if j.reason == nil {
				j.proc.stoppedBy(sig, j.notes)
			}
		case <-timer.C:
		}
		timer.Reset(j.step())
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
	for _, t := range []time.Time{j.terminate, j.kill} {
		if d := left(t); !t.IsZero() && d > 0 {
			wait = min(wait, d)
		}
	}
	return wait
}

// heard tells people what the guard has done.
func (j *job) heard(what byte) {
	name := j.lease.Name()
	switch {
	case what == reportKilled:
		j.killed = true
		j.notes.say("%q: %s", name, saidKill)
	case what == reportTerminated && j.reason != nil:
		j.notes.say("%s: %s in %v", plain(j.reason), saidTerminate, shortGrace)
	case what == reportTerminated:
		j.reason = j.why()
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

// guardEnded ends the command, unless the guard has ended with its group: without a guard,
// the command would outlive a locker that is killed.
func (j *job) guardEnded() {
	select {
	case <-j.proc.ended:
		return
	case <-time.After(shortGrace):
	}
	if !j.killed {
		j.reason, j.killed = errors.New("its guard was killed"), true
		j.proc.kill()
		j.notes.say("%q: %v: %s", j.lease.Name(), j.reason, saidKill)
	}
}

// end clears up after the command.
func (j *job) end() int {
	for _, what := range j.proc.dismiss() {
		j.heard(what)
	}
	if j.reason == nil && !j.proc.toldToEnd() {
		j.proc.finish()
		return j.proc.status
	}
	// Processes that the command has started may still run, for a while also after SIGKILL
	// (a disk that is slow). Meanwhile the lease is renewed: the bound is that of now.
	bound := max(shortGrace, min(left(j.lease.Until()), orphansEnd))
	if j.remains = !j.proc.endAll(time.Now().Add(bound)); j.remains {
		j.notes.say("%q: processes of the command have not ended yet after SIGKILL: the lock is not "+
			"released, and ends with its TTL", j.lease.Name())
	}
	return j.proc.status
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
