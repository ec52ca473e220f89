package lab

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	errPortTaken = errors.New("its port was taken by somebody else")
	errEnded     = errors.New("ended")
)

// launch starts what prepare returns, which takes new ports each time, until nobody else was there first.
func launch(t TB, prepare func() []*Process) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * pollEvery) {
		err := serve(prepare()...)
		if err == nil {
			return
		}
		if !errors.Is(err, errPortTaken) || time.Now().After(deadline) {
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
		if err = poll(p.answers, p); errors.Is(err, errEnded) && inUse(p.logFrom(from[i])) {
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

// Restart starts servers again that do not run, on their ports, with the same configuration and data. Somebody else
// may have got a port while it was free, and may give it back.
func Restart(t TB, servers ...*Process) {
	t.Helper()
	launch(t, func() []*Process { return servers })
}

// Restart starts the server again on the same port, with the same configuration and data, and returns once it
// answers; a member of several needs a majority of them for that. One that still runs is killed first
// (SIGKILL).
func (p *Process) Restart(t TB) {
	t.Helper()
	p.Kill()
	Restart(t, p)
}

// poll calls check until it returns nil. It gives up when a server that is alone has ended, and when servers have
// written nothing to their logs for as long as patience, or have come to nothing in three times as long: what they
// write is progress.
func poll(check func() error, servers ...*Process) error {
	began, progress, said := time.Now(), time.Now(), int64(0)
	for {
		size := int64(0)
		for _, s := range servers {
			size += s.logSize()
		}
		if size != said {
			progress, said = time.Now(), size
		}
		ended := len(servers) == 1 && !servers[0].Running()
		err := check()
		took, silent := time.Since(began), time.Since(progress)
		switch {
		case err == nil:
			return nil
		case ended:
			r, _ := servers[0].current()
			return fmt.Errorf("lab: %s %w instead of getting ready (%v): %w\n%s", servers[0].name, errEnded,
				r.cmd.ProcessState, err, servers[0].lastWords())
		case silent > patience || took > 3*patience:
			err = fmt.Errorf("lab: not ready after %v, the last %v in silence: %w", took, silent, err)
			for _, s := range servers {
				err = fmt.Errorf("%w\n%s said last:\n%s", err, s.name, s.lastWords())
			}
			return err
		}
		// Looking is work, too, for a machine that is busy.
		time.Sleep(min(max(took/20, pollEvery), 20*pollEvery))
	}
}

// await fails the test unless check returns nil in the time that servers have to get ready. One alone must not end.
func await(t TB, check func() error, servers ...*Process) {
	t.Helper()
	if err := poll(check, servers...); err != nil {
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
