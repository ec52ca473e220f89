package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// platformNotes is what differs here, for the help.
const platformNotes = `

On Windows there are neither process groups nor signals: when the lock cannot be
kept, COMMAND is terminated (TerminateProcess) at the time of SIGKILL, and what
it has started goes on, as does COMMAND itself if locker is killed. Ctrl-C goes
to all processes of a console; locker waits for COMMAND to end.`

// How messages call the two steps.
const (
	saidTerminate = "it is terminated"
	saidKill      = "terminated it"
)

// launch is what is needed to start a command.
type launch struct {
	path string
	args []string
	env  []string
	lock *os.File // not used: a file lock belongs to locker's process here

	// Not used: there is no guard.
	terminateAt, killAt time.Time
	nested, outlive     bool
}

// process is the command.
type process struct {
	cmd     *exec.Cmd
	ended   chan struct{} // closed when the command has ended
	status  int           // to be read after ended
	stopped chan os.Signal
	reports chan byte // what endAt has done

	terminated, killed bool
}

func start(l launch) (*process, error) {
	cmd := &exec.Cmd{
		Path: l.path, Args: l.args, Env: l.env,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, ended: make(chan struct{}), stopped: make(chan os.Signal),
		reports: make(chan byte, 2)}
	go func() {
		defer close(p.ended)
		err := cmd.Wait()
		p.status = cmd.ProcessState.ExitCode()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			p.status = statusCannotRun
		}
	}()
	return p, nil
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

func (p *process) kill()                             { _ = p.cmd.Process.Kill() }
func (p *process) forward(os.Signal, *notes)         {} // the console has told the command, too
func (p *process) stoppedBy(os.Signal, bool, *notes) {}
func (p *process) look()                             {}
func (p *process) newGuard() error                   { return nil }
func (p *process) toldToEnd() bool                   { return false }
func (p *process) death() death                      { return death{} }
func (p *process) finish()                           {}

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
