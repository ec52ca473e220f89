package lab

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// readyTimeout is how long a server may say nothing before it is ready. It is long because machines that run
// tests are busy; a server is up in a fraction of it. While it still writes to its log, it has readyTimes as
// long altogether.
var readyTimeout = 90 * time.Second

const readyTimes = 5

var (
	errPortTaken = errors.New("its port was taken by somebody else")
	errEnded     = errors.New("ended")
)

// launch starts what prepare returns, which takes new ports each time, until nobody else was there first.
func launch(t TB, prepare func() []*Process) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		err := serve(prepare()...)
		if err == nil {
			return
		}
		if !errors.Is(err, errPortTaken) || attempt == portAttempts {
			t.Fatalf("%v", err)
		}
	}
}

// serve starts those servers that do not run, all at once, since one may need the others to get ready, and
// returns when all answer. If it fails, none of them runs. The error is errPortTaken where one could not
// bind.
func serve(servers ...*Process) error {
	from := make([]int64, len(servers))
	var err error
	for i, p := range servers {
		if from[i] = p.logSize(); err == nil && !p.Running() {
			err = p.start()
		}
	}
	for i, p := range servers {
		if err != nil {
			break
		}
		if err = p.ready(p.answers); errors.Is(err, errEnded) && inUse(p.logFrom(from[i])) {
			err = fmt.Errorf("lab: %s: %w", p.name, errPortTaken)
		}
	}
	if err != nil {
		for _, p := range servers {
			p.Kill()
		}
	}
	return err
}

// inUse reports whether a server that has ended says that it found its port taken, or, of a database, that
// processes of its earlier life are not gone yet.
func inUse(log string) bool {
	log = strings.ToLower(log)
	return strings.Contains(log, "address already in use") ||
		strings.Contains(log, "shared memory block") || strings.Contains(log, "lock file")
}

// restart starts servers again that do not run, on their ports, with the same configuration and data.
func restart(t TB, servers ...*Process) {
	t.Helper()
	// Somebody else may have got a port while it was free, and may give it back.
	for deadline := time.Now().Add(readyTimeout); ; time.Sleep(20 * time.Millisecond) {
		err := serve(servers...)
		if err == nil {
			return
		}
		if !errors.Is(err, errPortTaken) || time.Now().After(deadline) {
			t.Fatalf("%v", err)
		}
	}
}

// Restart starts the server again on the same port, with the same configuration and data, and returns once it
// answers; a member of several needs a majority of them for that. One that still runs is killed first
// (SIGKILL).
func (p *Process) Restart(t TB) {
	t.Helper()
	p.Kill()
	restart(t, p)
}

// ready polls check until it returns nil. It gives up when the process has ended or time is up.
func (p *Process) ready(check func() error) error {
	r, _ := p.current()
	err := poll(check, r.done, p)
	switch {
	case errors.Is(err, errEnded):
		return fmt.Errorf("lab: %s %w instead of getting ready (%v): %s",
			p.name, errEnded, r.cmd.ProcessState, p.lastWords())
	case err != nil:
		return fmt.Errorf("lab: %s is not ready, and has said nothing for %v: %w", p.name, readyTimeout, err)
	}
	return nil
}

// poll calls check until it returns nil, time is up, or ended is closed. What servers write to their logs is
// progress, which gives them more time.
func poll(check func() error, ended <-chan struct{}, servers ...*Process) error {
	last, said := time.Now().Add(readyTimes*readyTimeout), int64(0)
	for deadline := last; ; {
		var size int64
		for _, s := range servers {
			size += s.logSize()
		}
		now := time.Now()
		if size != said || deadline.Equal(last) {
			deadline, said = now.Add(readyTimeout), size
		}
		err := check()
		if err == nil || now.After(deadline) || now.After(last) {
			return err
		}
		select {
		case <-ended:
			return fmt.Errorf("%w: %w", errEnded, err)
		case <-time.After(pollEvery):
		}
	}
}

// await fails the test unless check returns nil in the time that servers have to get ready. One alone must not end.
func await(t TB, check func() error, servers ...*Process) {
	t.Helper()
	wait := func() error { return poll(check, nil, servers...) }
	if len(servers) == 1 {
		wait = func() error { return servers[0].ready(check) }
	}
	if err := wait(); err != nil {
		t.Fatalf("%v", err)
	}
}

// processes are those of servers.
func processes[S interface{ process() *Process }](servers []S) (all []*Process) {
	for _, s := range servers {
		all = append(all, s.process())
	}
	return all
}

func (p *Process) process() *Process { return p }

// addrs lists the host:port of each of several servers.
func addrs[S interface{ process() *Process }](servers []S) (all []string) {
	for _, s := range servers {
		all = append(all, s.process().Addr())
	}
	return all
}
