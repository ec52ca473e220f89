package compare

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/lab"
)

// holder is a process that holds locks, as its parent sees it. It talks to the service through proxies of its
// own, and to the parent through pipes that no fault touches.
type holder struct {
	bench   *bench
	slot    string       // "a", "b" or "c"
	proxies []*lab.Proxy // one for each server; they stay when the process is started again
	lives   int

	process string // of this life
	proc    *lab.Process
	stdin   *os.File
	next    int  // caller
	killed  bool // by us

	mu      sync.Mutex
	ready   bool
	failed  string
	callers map[int]*seen
	flooded int // locks that callers without a history have taken
}

// seen is how far a caller has come, as it has told.
type seen struct {
	granted, gaveUp, gate, done bool

	until int64
	err   string
}

// newHolder makes the proxies of a holder, and starts it.
func (b *bench) newHolder(slot string) *holder {
	h := &holder{bench: b, slot: slot}
	for _, host := range b.svc.address.hosts {
		h.proxies = append(h.proxies, lab.StartProxy(b.stage, host))
	}
	h.start()
	return h
}

// start starts the process, in a life of its own, and waits until its client is open.
func (h *holder) start() {
	b := h.bench
	h.killed = false
	h.mu.Lock()
	h.lives++
	life := h.lives
	h.ready, h.failed, h.callers, h.flooded = false, "", map[int]*seen{}, 0
	h.mu.Unlock()
	h.process = fmt.Sprintf("%s-%s%d", b.svc.key, h.slot, life)
	hosts := make([]string, len(h.proxies))
	for i, p := range h.proxies {
		hosts[i] = p.Addr()
	}
	text, err := json.Marshal(part{
		Process: h.process, Service: b.svc.name, URL: b.svc.address.through(hosts), TTL: b.ttl,
		Act: max(b.ttl/50, 10*time.Millisecond), Opens: b.opens,
		Journal: filepath.Join(b.run.dir, h.process+".jsonl"),
	})
	if err != nil {
		b.Fatal(err)
	}
	binary := b.run.program
	theirIn, stdin, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, theirOut, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	var env []string
	env = append(append(env, os.Environ()...), childEnv+"="+string(text))
	h.stdin = stdin
	h.proc = lab.StartProcess(b.stage, h.process, func() (*exec.Cmd, error) {
		cmd := exec.CommandContext(context.Background(), binary)
		cmd.Env, cmd.Stdin, cmd.Stdout = env, theirIn, theirOut
		return cmd, nil
	})
	_ = theirIn.Close()
	_ = theirOut.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.listen(life, stdin, stdout)
	}()
	b.Cleanup(func() {
		h.end()
		_ = stdin.Close()
		<-ended
		_ = stdout.Close()
	})
	if !b.wait(b.opens+5*time.Second, func() bool { open, failed := h.state(); return open || failed != "" }) {
		b.Fatalf("a client of %s did not open within %v: %s", b.svc.address.shown, b.opens, h.lastWords())
	}
	if _, failed := h.state(); failed != "" {
		b.Fatalf("%s", failed)
	}
}

// warm has the client do what it does only once: connections, scripts, a session. It belongs to no trial. It
// returns what was in the way, "" for nothing.
func (h *holder) warm() (trouble string) {
	b := h.bench
	g := h.hold(&round{names: []string{b.run.prefix + b.svc.key + "-warm-" + h.process}}, func(c *command) {
		c.Within, c.Again, c.Keep = b.free()+b.opens, true, time.Millisecond
	})
	if b.wait(b.free()+b.opens+time.Second, func() bool { return g.all(done) }); !g.all(granted) {
		return g.trouble()
	}
	return ""
}

// state is what the process has said of its client: that it is open, or why not.
func (h *holder) state() (open bool, failed string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ready, h.failed
}

// kill ends the process without a word.
func (h *holder) kill() {
	h.killed = true
	h.proc.Kill()
}

// crashed reports whether the process has ended though nobody killed it.
func (h *holder) crashed() bool {
	open, _ := h.state()
	return open && !h.killed && !h.proc.Running()
}

// lastWords is what the process wrote to its standard error, such as a panic.
func (h *holder) lastWords() string {
	log := strings.TrimSpace(h.proc.Log())
	if at := strings.Index(log, "panic: "); at > 0 {
		log = log[at:]
	}
	return cmp.Or(log[:min(len(log), 500)], "it said nothing")
}

// end ends the process in good order if it can, so that what it holds is given back.
func (h *holder) end() {
	if !h.proc.Running() {
		return
	}
	h.proc.Resume()
	h.send(command{Do: "close"})
	for end := time.Now().Add(7 * time.Second); h.proc.Running() && time.Now().Before(end); {
		time.Sleep(2 * time.Millisecond)
	}
	h.proc.Kill()
}

// listen reads what one life of the process says.
func (h *holder) listen(life int, stdin, stdout *os.File) {
	lines := bufio.NewReaderSize(stdout, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			h.mu.Lock()
			if !h.ready && h.failed == "" && h.lives == life {
				h.failed = "its process ended: " + h.lastWords()
			}
			h.mu.Unlock()
			return
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			continue // half a line of a process that was killed
		}
		if e := m.Event; e != nil && e.Kind == history.Acted {
			// The recorder: what is protected has been acted upon now.
			l := *e
			l.Kind = history.Landed
			h.bench.run.write(l)
			send(stdin, command{Do: "landed", Caller: e.Caller, Seq: e.Seq})
			continue
		}
		if m.Full != "" {
			h.bench.run.stop(&fullError{m.Full})
			continue
		}
		h.mu.Lock()
		if h.lives == life {
			h.take(m)
		}
		h.mu.Unlock()
	}
}

// take notes what a message says. The mutex is held.
func (h *holder) take(m message) {
	caller := func(id int) *seen {
		if h.callers[id] == nil {
			h.callers[id] = &seen{}
		}
		return h.callers[id]
	}
	switch {
	case m.Ready:
		h.ready = true
	case m.Failed != "":
		h.failed = m.Failed
	case m.Gate != 0:
		caller(m.Gate).gate = true
	case m.Flooded != 0:
		h.flooded += m.Flooded
	case m.Done != 0:
		caller(m.Done).done = true
	case m.Event != nil:
		s := caller(m.Event.Caller)
		switch e := m.Event; e.Kind {
		case history.Granted:
			s.granted, s.until = true, e.Until
		case history.Renewed:
			s.until = e.Until
		case history.GaveUp, history.Refused:
			s.gaveUp, s.err = true, e.Error
		}
	}
}

func (h *holder) send(c command) { send(h.stdin, c) }

func send(to *os.File, c command) {
	line, err := json.Marshal(c)
	if err == nil {
		// A process that is gone does not hear it.
		_, _ = to.Write(append(line, '\n'))
	}
}

// traffic is what the holder's proxies have seen since they were started.
func (h *holder) traffic() lab.Stats {
	var sum lab.Stats
	for _, p := range h.proxies {
		s := p.Stats()
		sum.Requests.Dropped += s.Requests.Dropped
		sum.Requests.Held += s.Requests.Held
		sum.Replies.Dropped += s.Replies.Dropped
		sum.Replies.Held += s.Replies.Held
	}
	return sum
}

// network does something to all of the holder's proxies.
func (h *holder) network(f func(p *lab.Proxy)) {
	for _, p := range h.proxies {
		f(p)
	}
}

// group is callers of one holder, one for each name.
type group struct {
	h       *holder
	callers []int
}

// hold has one caller of h ask for each name of the round, and hold it until it is released.
func (h *holder) hold(r *round, set func(c *command)) group {
	g := group{h: h}
	for _, name := range r.names {
		h.next++
		c := command{Do: "hold", Trial: r.id, Name: name, Caller: h.next}
		if set != nil {
			set(&c)
		}
		g.callers = append(g.callers, h.next)
		h.mu.Lock()
		h.callers[h.next] = &seen{}
		h.mu.Unlock()
		h.send(c)
	}
	return g
}

// tell sends the same word to all callers of the group: release, open.
func (g group) tell(do string) {
	for _, id := range g.callers {
		g.h.send(command{Do: do, Caller: id})
	}
}

// caller is how far one of h's callers has come.
func (h *holder) caller(id int) seen {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.callers[id]; s != nil {
		return *s
	}
	return seen{done: true} // of an earlier life
}

// all reports whether something is true of all callers of the group.
func (g group) all(what func(*seen) bool) bool {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	for _, id := range g.callers {
		if s := g.h.callers[id]; s == nil || !what(s) {
			return false
		}
	}
	return true
}

func granted(s *seen) bool  { return s.granted }
func answered(s *seen) bool { return s.granted || s.gaveUp }
func done(s *seen) bool     { return s.done }

// heal undoes what was done to the holder, but for its death.
func (h *holder) heal() {
	h.network(func(p *lab.Proxy) {
		p.SetDelay(0)
		p.Set(lab.Pass)
	})
	if h.proc.Running() {
		h.proc.Resume()
	}
}

// flood is how many locks the floods of this life have taken that are over.
func (h *holder) flood() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.flooded
}

// trouble is what the callers of a group that hold nothing were told last.
func (g group) trouble() string {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	for _, id := range g.callers {
		if s := g.h.callers[id]; s != nil && !s.granted && s.err != "" {
			return s.err
		}
	}
	return "no answer"
}
