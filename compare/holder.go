package compare

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/lab"
)

// holder is a process that holds locks, as its parent sees it. It talks to the service through its own
// proxies, and to the parent through pipes that no fault touches.
type holder struct {
	bench   *bench
	slot    string       // "a", "b" or "c"
	proxies []*lab.Proxy // one per server; they stay when the process is restarted
	wire    wire         // on the way to all of them
	lives   int

	process string // of this life
	proc    *lab.Process
	stdin   io.WriteCloser
	next    int  // caller
	killed  bool // by us

	mu      sync.Mutex
	open    bool          // the process has said that its client is open
	stopped bool          // by us, at least once
	callers map[int]*seen // a new one for each life
}

// seen is how far a caller has come, by its own report.
type seen struct {
	granted, gaveUp, released, done bool

	until int64
	err   string
}

func granted(s *seen) bool  { return s.granted }
func answered(s *seen) bool { return s.granted || s.gaveUp }
func done(s *seen) bool     { return s.done }

// newHolder creates a holder's proxies, and starts it.
func (b *bench) newHolder(slot string) *holder {
	h := &holder{bench: b, slot: slot, wire: wire{talks: map[*lab.Link]*talk{}}}
	for _, host := range b.hosts {
		p := lab.StartProxy(b, host)
		p.Watch(h.wire.saw)
		h.proxies = append(h.proxies, p)
	}
	h.start()
	return h
}

// start starts the process, as a new life, and waits until its client is open.
func (h *holder) start() {
	b := h.bench
	h.lives++
	h.killed = false
	process := fmt.Sprintf("%s-%s%d", b.name, h.slot, h.lives)
	h.mu.Lock()
	h.process, h.open, h.stopped, h.callers = process, false, false, map[int]*seen{}
	h.mu.Unlock()
	var hosts []string
	for _, p := range h.proxies {
		hosts = append(hosts, p.Addr())
	}
	text, _ := json.Marshal(part{URL: b.through(hosts), TTL: b.ttl,
		Opens: b.opens + 5*time.Second}) // plus the start of a process
	stdout, out := io.Pipe()
	h.proc = lab.StartProcess(b, process, func() (cmd *exec.Cmd, err error) {
		cmd = exec.CommandContext(context.Background(), b.run.program)
		cmd.Env, cmd.Stdout = append(os.Environ(), childEnv+"="+string(text)), out
		h.stdin, err = cmd.StdinPipe()
		return cmd, err
	})
	go func() {
		for lines := json.NewDecoder(stdout); ; {
			var e history.Event
			if err := lines.Decode(&e); err != nil { // a killed process leaves half a line
				_ = stdout.CloseWithError(err)
				return
			}
			e.Process = process
			h.hear(e)
		}
	}()
	end := func() {
		h.end()
		_ = out.Close() // which ends the readers
	}
	b.Cleanup(end)
	opened := func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.open
	}
	if b.wait(b.opens+10*time.Second, func() bool { return opened() || !h.proc.Running() }); !opened() {
		end()
		b.Fatalf("a client of %s did not open: %s", b.shown, h.lastWords())
	}
}

// warm makes the client do what it does only once: connections, scripts, a session. It belongs to no
// trial. It returns what went wrong, or "".
func (h *holder) warm() (trouble string) {
	b := h.bench
	g := h.hold(&round{names: []string{b.run.prefix + b.name + "-warm-" + h.process}}, command{
		Within: b.free() + b.opens, Keep: time.Millisecond})
	if b.wait(b.free()+b.opens+time.Second, func() bool { return g.all(done) }); !g.all(granted) {
		return g.trouble()
	}
	return ""
}

// stop pauses the process. Its pause is not a stall of the machine, in any trial.
func (h *holder) stop() {
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()
	h.proc.Pause()
}

// kill kills the process.
func (h *holder) kill() {
	h.killed = true
	h.proc.Kill()
}

// crashed reports whether the process has ended without being killed.
func (h *holder) crashed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open && !h.killed && !h.proc.Running()
}

// lastWords is what the process wrote to its standard error, such as a panic.
func (h *holder) lastWords() string {
	log := strings.TrimSpace(h.proc.Log())
	at := strings.Index(log, "panic: ")
	if at < 0 {
		at = max(0, len(log)-500)
	}
	return cmp.Or(log[at:min(len(log), at+500)], "it wrote nothing")
}

// end ends the process in an orderly way if possible, so that it releases what it holds.
func (h *holder) end() {
	if !h.proc.Running() {
		return
	}
	h.heal()
	_ = h.stdin.Close()
	for end := time.Now().Add(7 * time.Second); h.proc.Running() && time.Now().Before(end); {
		time.Sleep(2 * time.Millisecond)
	}
	h.proc.Kill()
}

// hear records and journals what one life of the process reports.
func (h *holder) hear(e history.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.Kind == history.Stall && h.stopped {
		return
	}
	h.bench.run.journal.Add(e) // outside any trial if it is not part of a history
	s := h.callers[e.Caller]
	if s == nil || h.process != e.Process {
		s = &seen{} // nobody's
	}
	switch e.Kind {
	case isOpen:
		h.open = h.open || h.process == e.Process
	case isOver:
		s.done = true
	case history.Granted:
		s.granted, s.until = true, e.Until
	case history.Renewed:
		s.until = e.Until
	case history.GaveUp, history.Refused:
		s.gaveUp, s.err = true, e.Error
	}
}

func (h *holder) send(c command) {
	_ = json.NewEncoder(h.stdin).Encode(c) // a process that is gone does not receive it
}

// lost is how many bytes between h and the service have vanished or been delayed so far.
func (h *holder) lost() (sum int64) {
	for _, p := range h.proxies {
		s := p.Stats()
		sum += s.Requests.Dropped + s.Requests.Held + s.Replies.Dropped
	}
	return sum
}

// answers are the slow answers or, if they are not visible, all since the trial began.
func (h *holder) answers(began int64) []history.Event {
	all := h.wire.take()
	if h.proxies == nil {
		all = []history.Event{{Kind: history.Slow, Value: history.Now() - began, Detail: h.bench.why}}
	}
	for i := range all {
		all[i].Process = h.process
	}
	return all
}

// network applies something to all of the holder's proxies.
func (h *holder) network(f func(p *lab.Proxy)) {
	for _, p := range h.proxies {
		f(p)
	}
}

// heal undoes the holder's faults, except its death.
func (h *holder) heal() {
	h.network(func(p *lab.Proxy) { p.Set(lab.Pass) })
	if h.proc.Running() {
		h.proc.Resume()
	}
}

// group is callers of one holder, one per name.
type group struct {
	h       *holder
	callers []int
}

// hold makes one caller of h per name of the round ask for it, as c says.
func (h *holder) hold(r *round, c command) group {
	g, suffix := group{h: h}, c.Name
	c.Do, c.Trial = cmp.Or(c.Do, "hold"), r.id
	for _, name := range r.names {
		h.next++
		h.mu.Lock()
		h.callers[h.next] = &seen{}
		h.mu.Unlock()
		c.Name, c.Caller = name+suffix, h.next
		g.callers = append(g.callers, h.next)
		h.send(c)
	}
	return g
}

// each visits all callers of the group; those of an earlier life of the process have ended.
func (g group) each(look func(id int, s *seen)) {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	for _, id := range g.callers {
		look(id, cmp.Or(g.h.callers[id], &seen{done: true}))
	}
}

// all reports whether something is true for all callers of the group.
func (g group) all(what func(*seen) bool) bool {
	is := true
	g.each(func(_ int, s *seen) { is = is && what(s) })
	return is
}

// release makes those callers unlock for which the condition is true, once, and reports whether any is
// left.
func (g group) release(whom func(*seen) bool) (left bool) {
	var now []int
	g.each(func(id int, s *seen) {
		left = left || !s.done
		if !s.done && !s.released && whom(s) {
			s.released, now = true, append(now, id)
		}
	})
	for _, id := range now {
		g.h.send(command{Do: "release", Caller: id})
	}
	return left
}

// trouble is the last error of a caller of the group that holds nothing.
func (g group) trouble() (says string) {
	g.each(func(_ int, s *seen) {
		if !s.granted {
			says = cmp.Or(says, s.err)
		}
	})
	return cmp.Or(says, "no answer")
}
