package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// platformNotes is what differs here, for the help.
const platformNotes = `

On Windows there are no signals: when the lock cannot be kept, locker terminates
itself, COMMAND, and all that COMMAND has started.`

// How messages call the first step. Nobody is left to say the second.
const (
	saidTerminate = "all is terminated"
	saidKill      = "terminated"
)

// process is the command, in a job with locker and all processes that the command starts. A job ends as a whole:
// when locker says so, and with its last handle, which is locker's.
type process struct {
	cmd     *exec.Cmd
	job     windows.Handle
	status  int         // of the command, when it has ended
	reports chan report // as of a guard

	terminated bool
}

func start(l launch) (*process, error) {
	p := &process{reports: make(chan report, 8)}
	p.cmd = &exec.Cmd{Path: l.path, Args: l.args, Env: l.env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	var err error
	if p.job, err = windows.CreateJobObject(nil, nil); err != nil {
		return nil, err
	}
	if err = windows.AssignProcessToJobObject(p.job, windows.CurrentProcess()); err == nil {
		err = p.endWithLocker(true)
	}
	if err != nil {
		p.finish()
		return nil, err
	}
	p.reports <- report{What: reportAtGate}
	return p, nil
}

// letGo starts the command.
func (p *process) letGo(int) {
	if err := p.cmd.Start(); err != nil {
		var errno syscall.Errno
		errors.As(err, &errno)
		p.reports <- report{reportUnrun, int32(errno)}
		return
	}
	p.reports <- report{What: reportBegun}
	go func() {
		err := p.cmd.Wait()
		status := p.cmd.ProcessState.ExitCode()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			status = statusCannotRun
		}
		p.reports <- report{reportEnded, int32(status)}
	}()
}

func (p *process) end(status int32) { p.status = int(status) }

// endWithLocker sets whether the job ends with locker.
func (p *process) endWithLocker(ends bool) error {
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	if ends {
		limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	}
	_, err := windows.SetInformationJobObject(p.job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	return err
}

// endAt does what a guard does elsewhere, when it is called in time.
func (p *process) endAt(terminate, kill time.Time) {
	if !p.terminated && !terminate.IsZero() && left(terminate) <= 0 {
		p.terminated = true
		p.reports <- report{What: reportTerminated}
	}
	if p.terminated && left(kill) <= 0 {
		p.kill()
	}
}

// kill ends the job, locker included: its exit status is what people would get anyway, and the lock ends with its TTL.
func (p *process) kill() { _ = windows.TerminateJobObject(p.job, statusLost) }

func (p *process) forward(os.Signal, notes) {} // the console has told the command, too
func (p *process) stoppedBy(int32, notes)   {}
func (p *process) look()                    {}
func (p *process) toldToEnd() bool          { return false }
func (p *process) death() death             { return death{} }

// endAll is finish for a command whose whole job has to end.
func (p *process) endAll(time.Time) bool {
	p.kill()
	return false
}

// finish lets what the command has left go on.
func (p *process) finish() {
	_ = p.endWithLocker(false)
	_ = windows.CloseHandle(p.job)
}

func (p *process) dismiss() {}
func (p *process) giveUp()  {}

func beGuard([]string) (status int, done bool) { return 0, false }
func (death) pass()                            {}
func isTerminal(int) bool                      { return false }
func notify(c chan<- os.Signal)                { signal.Notify(c, os.Interrupt, syscall.SIGTERM) }
func holdStill(chan<- os.Signal)               {}
func endsWait(os.Signal) bool                  { return true }
func resumes(os.Signal) bool                   { return false }
