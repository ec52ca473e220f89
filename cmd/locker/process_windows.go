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

On Windows there are no signals: when the lock cannot be kept, COMMAND and all
that it has started are terminated at the time of SIGKILL, and so they are if
locker itself is killed. Ctrl-C goes to all processes of a console; locker waits
for COMMAND to end.`

// How messages call the two steps.
const (
	saidTerminate = "it is terminated"
	saidKill      = "terminated it"
)

// process is the command, in a job with all processes that it starts.
type process struct {
	cmd     *exec.Cmd
	job     windows.Handle
	ended   chan struct{} // closed when the command has ended
	status  int           // to be read after ended
	stopped chan os.Signal
	reports chan byte // what endAt has done

	terminated, killed bool
}

func start(l launch) (*process, error) {
	p := &process{ended: make(chan struct{}), stopped: make(chan os.Signal), reports: make(chan byte, 2)}
	p.cmd = &exec.Cmd{
		Path: l.path, Args: l.args, Env: l.env,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		// Until it is in the job: what it starts before would not be.
		SysProcAttr: &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED},
	}
	var err error
	if p.job, err = windows.CreateJobObject(nil, nil); err != nil {
		return nil, err
	}
	if err = p.endWithLocker(true); err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, windows.CloseHandle(p.job))
	}
	if err := p.run(); err != nil {
		_ = p.cmd.Process.Kill()
		return nil, errors.Join(err, p.cmd.Wait(), windows.CloseHandle(p.job))
	}
	go func() {
		defer close(p.ended)
		err := p.cmd.Wait()
		p.status = p.cmd.ProcessState.ExitCode()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			p.status = statusCannotRun
		}
	}()
	return p, nil
}

// run puts the command into the job, and lets it run, as debuggers do: os/exec does not hand out its only
// thread, for ResumeThread.
func (p *process) run() (err error) {
	without := p.cmd.Process.WithHandle(func(handle uintptr) {
		if err = windows.AssignProcessToJobObject(p.job, windows.Handle(handle)); err != nil {
			return
		}
		if status, _, _ := resumeProcess.Call(handle); status != 0 {
			err = windows.NTStatus(status)
		}
	})
	return errors.Join(without, err)
}

var resumeProcess = windows.NewLazySystemDLL("ntdll.dll").NewProc("NtResumeProcess")

// endWithLocker sets whether the job ends with its last handle, which is locker's.
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
		p.reports <- reportTerminated
	}
	if p.terminated && !p.killed && left(kill) <= 0 {
		p.killed = true
		p.kill()
		p.reports <- reportKilled
	}
}

func (p *process) kill()                      { _ = windows.TerminateJobObject(p.job, 1) }
func (p *process) forward(os.Signal, notes)   {} // the console has told the command, too
func (p *process) stoppedBy(os.Signal, notes) {}
func (p *process) look()                      {}
func (p *process) toldToEnd() bool            { return false }
func (p *process) death() death               { return death{} }

// endAll is finish for a command whose whole job has to end. It reports whether the job has
// ended by then: TerminateJobObject does not wait.
func (p *process) endAll(by time.Time) bool {
	defer p.finish()
	p.kill()
	for {
		// JOBOBJECT_BASIC_ACCOUNTING_INFORMATION
		var info struct {
			times                         [4]int64
			faults, total, active, killed uint32
		}
		err := windows.QueryInformationJobObject(p.job, windows.JobObjectBasicAccountingInformation,
			uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), nil)
		if err == nil && info.active == 0 {
			return true
		}
		if !time.Now().Before(by) {
			return false
		}
		time.Sleep(time.Millisecond)
	}
}

// finish lets what the command has left go on.
func (p *process) finish() {
	_ = p.endWithLocker(false)
	_ = windows.CloseHandle(p.job)
}

// dismiss returns the reports that nobody has heard yet.
func (p *process) dismiss() (reported []byte) {
	close(p.reports)
	for what := range p.reports {
		reported = append(reported, what)
	}
	return reported
}

func beGuard([]string) (status int, done bool) { return 0, false }

func (death) pass() {}

func isTerminal(int) bool { return false }

func notify(c chan<- os.Signal) { signal.Notify(c, os.Interrupt, syscall.SIGTERM) }

func holdStill(chan<- os.Signal) {}

func endsWait(os.Signal) bool { return true }

func resumes(os.Signal) bool { return false }

func number(sig os.Signal) int { return int(sig.(syscall.Signal)) }
