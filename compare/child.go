package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/bridge"
	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
)

// childEnv makes a process a holder: its value is the process's part, as JSON.
const childEnv = "LOCKER_COMPARE_HOLDER"

// part is the configuration of a holder.
type part struct {
	URL   string
	TTL   time.Duration
	Opens time.Duration // how long the service's first answer may take
}

// command is a command of the parent to a holder, as a line of JSON.
type command struct {
	Do     string
	Trial  string
	Caller int
	Name   string
	Within time.Duration // hold: how long to ask for the lock
	Loop   bool          // hold: and to take it repeatedly
	Try    bool          // hold: do not wait, but ask repeatedly
	Keep   time.Duration // hold: how long; 0: until "release"
}

// A holder reports the events of its history to the parent, as lines of JSON, and these.
const (
	isOpen history.Kind = "open" // the client is open
	isOver history.Kind = "over" // this caller's command has ended
)

// PlayHolder turns this process into a holder of a comparison, if it was started as one, and does not
// return. In any other process it returns at once. A program with a [Command] must call it first, with
// the same openers, because holders are that program, started again. [Main] does both.
func PlayHolder(openers driver.Openers) {
	text, is := os.LookupEnv(childEnv)
	if !is {
		return
	}
	_ = os.Unsetenv(childEnv)
	signal.Ignore(os.Interrupt) // Ctrl-C is for the parent, which ends its holders
	h := &holderProgram{callers: map[int]context.CancelFunc{}}
	_ = json.Unmarshal([]byte(text), &h.part)
	if err := h.run(openers); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(0)
}

// holderProgram is a process that holds locks and watches its leases.
type holderProgram struct {
	part
	client *locker.Client

	out sync.Mutex // one line at a time, in the order of their times

	mu      sync.Mutex
	callers map[int]context.CancelFunc // ends each caller
	calls   sync.WaitGroup
}

// say reports to the parent, which always reads; if the parent is gone, this process soon is, too.
func (h *holderProgram) say(e history.Event) {
	h.out.Lock()
	defer h.out.Unlock()
	e.At = history.Now()
	_ = json.NewEncoder(os.Stdout).Encode(e)
}

// tell reports an event of a caller.
func (h *holderProgram) tell(c command, kind history.Kind, e history.Event) {
	e.Kind, e.Trial, e.Caller, e.Name = kind, c.Trial, c.Caller, c.Name
	h.say(e)
}

// run obeys commands until the parent ends them or is gone.
func (h *holderProgram) run(openers driver.Openers) (err error) {
	defer watchStalls(h.say)()
	// The parent has opened it: if it is unreachable, this machine is busy or the servers will come
	// back.
	h.client, err = openAgain(context.Background(), openers, h.URL,
		&locker.Options{TTL: h.TTL, Label: "locker compare"}, h.Opens)
	if err != nil {
		return err
	}
	h.say(history.Event{Kind: isOpen})
	all, leave := context.WithCancel(context.Background())
	lines, c := json.NewDecoder(os.Stdin), command{}
	for ; lines.Decode(&c) == nil; c = (command{}) {
		h.obey(all, c)
	}
	// Nobody relies on the locks that Close releases, and a hanging one ends with its TTL.
	leave()
	defer time.AfterFunc(6*time.Second, func() { os.Exit(0) }).Stop()
	h.calls.Wait()
	return h.client.Close()
}

// openAgain opens a service within limit, and retries while it is away.
func openAgain(ctx context.Context, openers driver.Openers, url string, opts *locker.Options,
	limit time.Duration) (client *locker.Client, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		client, err = bridge.Open(ctx, url, opts, openers)
		if !errors.Is(err, locker.ErrUnavailable) || clock.Sleep(ctx, 50*time.Millisecond) != nil {
			return client, err
		}
	}
}

func (h *holderProgram) obey(all context.Context, c command) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.Do == "hold" {
		wanted, release := context.WithCancel(all)
		h.callers[c.Caller] = release
		h.calls.Go(func() { h.call(wanted, c) })
	} else if release := h.callers[c.Caller]; release != nil { // it has not ended yet
		release()
	}
}

// call holds a lock, once or repeatedly, while it is wanted. It asks again if the service is away or
// has refused.
func (h *holderProgram) call(wanted context.Context, c command) {
	ctx, cancel := context.WithTimeout(wanted, c.Within)
	defer cancel()
	for ctx.Err() == nil {
		if lease := h.lock(ctx, c); lease == nil {
			_ = clock.Sleep(ctx, 50*time.Millisecond)
		} else if h.keep(wanted, c, lease); !c.Loop {
			break
		}
	}
	h.mu.Lock()
	h.callers[c.Caller]()
	delete(h.callers, c.Caller)
	h.mu.Unlock()
	h.say(history.Event{Kind: isOver, Caller: c.Caller})
}

// keep watches a lease until it is told to leave or the lease ends.
func (h *holderProgram) keep(wanted context.Context, c command, lease *locker.Lease) {
	defer h.leave(c, lease)
	var over <-chan time.Time
	if c.Keep > 0 {
		over = time.After(c.Keep)
	}
	until, look := lease.Until(), time.NewTicker(max(h.TTL/50, 10*time.Millisecond))
	defer look.Stop()
	for {
		if u := lease.Until(); !u.Equal(until) {
			until = u
			h.tell(c, history.Renewed, history.Event{Until: history.Until(u)})
		}
		select {
		case <-look.C:
			continue
		case <-lease.Done():
		case <-wanted.Done():
		case <-over:
		}
		return
	}
}

// lock asks for the lock; nil if it was not granted.
func (h *holderProgram) lock(ctx context.Context, c command) *locker.Lease {
	lock, ask := h.client.Lock, history.Event{}
	if c.Try {
		lock, ask.Value = h.client.TryLock, 1
	}
	h.tell(c, history.Ask, ask)
	lease, err := lock(ctx, c.Name)
	switch {
	case err == nil:
		token, _ := lease.Token()
		h.tell(c, history.Granted, history.Event{Token: token, Until: history.Until(lease.Until())})
	case errors.Is(err, locker.ErrHeld) && ctx.Err() == nil:
		h.tell(c, history.Refused, history.Event{Error: err.Error()})
	default:
		h.tell(c, history.GaveUp, history.Event{Error: err.Error()})
	}
	return lease
}

// leave unlocks. It cleans up after a lost lease, as Do does.
func (h *holderProgram) leave(c command, lease *locker.Lease) {
	if lost := lease.Err(); lost != nil {
		h.tell(c, history.ToldLost, history.Event{Error: lost.Error()})
	} else {
		h.tell(c, history.UnlockBegin, history.Event{})
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(h.TTL, time.Second))
	defer cancel()
	_ = lease.Unlock(ctx)
}
