package redlock

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/redisnode"
)

// The restart guard: a server that was restarted may have forgotten a lock that
// is still held, and would vote for a second holder. Every lock that it may have
// forgotten is over when it has been up for the longest TTL; until then it does
// not vote, unless it has proven that it forgets nothing.

// errRestarted is the error of a server that does not know the scripts that it was
// given: it was restarted, or has forgotten its scripts.
var errRestarted = errors.New("the server was restarted or has forgotten its scripts")

// run is one run of the server at a node's address.
type run struct {
	id     string
	uptime time.Duration // as the server's wall clock has it, in whole seconds, and up to a second too long
	// durable: every write is on disk before it is answered (appendonly yes,
	// appendfsync always, and no-appendfsync-on-rewrite no, since with yes it is not
	// while the server writes a snapshot). False also where that cannot be read.
	durable bool
	// before is the run before this one that gave votes and whose note is still
	// there: its data was kept. "": there is none (R24).
	before string
	noted  bool // this client knows that this durable run's own note was written
}

// scripts are what a run of a server was given to vote with. Their texts have its run_id:
// a server that was restarted does not know them.
type scripts struct{ vote, repair *redisnode.Script }

// guardedError is why a node that was restarted does not vote.
type guardedError struct {
	addr  string
	until time.Time
	whole time.Duration
}

func (e *guardedError) left() time.Duration { return max(0, time.Until(e.until)) }

func (e *guardedError) Error() string {
	return fmt.Sprintf("redis %s: restarted, and may have forgotten locks that are still held: it votes in "+
		"%v (restart guard of %v)",
		e.addr, e.left().Round(10*time.Millisecond), e.whole)
}

// duplicateError is two nodes that are one.
type duplicateError struct{ a, b string }

func (e *duplicateError) Error() string {
	return fmt.Sprintf("nodes %s and %s are the same server, one vote would count twice: give each server "+
		"once", e.a, e.b)
}

// currentScripts is nil if the node has to be looked at before it votes.
func (n *node) currentScripts() *scripts {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.scripts
}

// cold reports that the node was never reached, nor found out of reach:
// connecting takes longer than asking.
func (n *node) cold() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.seen
}

// forget drops the scripts of a server that does not know them any more.
func (n *node) forget(s *scripts) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.scripts == s {
		n.scripts = nil
	}
}

// look is one look at the server of a node, for all who wait for it.
type look struct {
	over    chan struct{} // closed when it is
	scripts *scripts
	err     error
}

// ready returns the scripts by which the node votes. If it has none, its server is looked
// at, once for all who ask at the same time, and no longer waited for than wait.
func (n *node) ready(wait time.Duration) (*scripts, error) {
	n.mu.Lock()
	s, l := n.scripts, n.looking
	var err error
	switch {
	case s != nil:
	case time.Now().Before(n.guardUntil):
		// Nothing is gained by asking it again before. Should it have been
		// restarted meanwhile, the look after that will see it.
		err = n.guarded()
	case l == nil:
		l = &look{over: make(chan struct{})}
		n.looking = l
		if !n.b.start(func() { n.look(l) }) {
			n.looking, err = nil, redisnode.ErrClosed
		}
	}
	n.mu.Unlock()
	if s != nil || err != nil {
		return s, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-l.over:
		return l.scripts, l.err
	case <-timer.C:
		return nil, errNoAnswer
	case <-n.b.ctx.Done():
		return nil, redisnode.ErrClosed
	}
}

// look finds out which server answers, and whether it may vote.
func (n *node) look(l *look) {
	ctx, cancel := context.WithTimeout(n.b.ctx, requestTimeout)
	defer cancel()
	l.scripts, l.err = n.identify(ctx)
	l.err = ourLimit(n.b.ctx, l.err)
	var guarded *guardedError
	var twice *duplicateError
	well := l.err == nil || errors.As(l.err, &guarded) || errors.As(l.err, &twice)
	n.mu.Lock()
	n.looking, n.seen = nil, true
	if l.err == nil {
		n.scripts = l.scripts
	}
	if well {
		n.fails, n.lastErr = 0, nil
	} else {
		n.failed(l.err)
	}
	n.mu.Unlock()
	close(l.over)
	if !well {
		n.warn(l.err)
	}
}

// identify asks the server who it is, decides whether it may vote, and gives it
// its scripts.
func (n *node) identify(ctx context.Context) (*scripts, error) {
	asked := time.Now()
	r, err := n.askWhoItIs(ctx)
	if err != nil {
		if n.b.opts.NoRestartGuard && redisnode.Barred(err) {
			// it may not run INFO: neither does it have to
			return n.newScripts(run{}), nil
		}
		return nil, err
	}
	if err := n.b.register(n, r.id); err != nil {
		return nil, err
	}
	if err := n.guard(r, asked); err != nil {
		return nil, err
	}
	return n.prepare(ctx, r)
}

// askWhoItIs asks which run of which server answers at the address.
func (n *node) askWhoItIs(ctx context.Context) (run, error) {
	return redisnode.Ask(ctx, n.Node, "identify", n.client(), func(ctx context.Context, c *redis.Client) (run, error) {
		pipe := c.Pipeline()
		info := pipe.Info(ctx, "server")
		aof := pipe.ConfigGet(ctx, "*append*")
		note := pipe.MGet(ctx, redisnode.RunsKey)
		_, execErr := pipe.Exec(ctx)
		if err := info.Err(); err != nil {
			return run{}, err
		}
		s := redisnode.ParseInfo(n.Addr, info.Val())
		if s.RunID == "" { // where there is no connection, the commands themselves do not say so
			return run{}, cmp.Or(execErr, errors.New("INFO server names no run_id"))
		}
		if err := cmp.Or(s.Supported(), n.Single(ctx, s)); err != nil {
			return run{}, err
		}
		r := run{id: s.RunID, uptime: s.Uptime}
		kept := aof.Val()
		r.durable = aof.Err() == nil && kept["appendonly"] == "yes" && kept["appendfsync"] == "always" &&
			kept["no-appendfsync-on-rewrite"] == "no"
		var text string
		if found := note.Val(); len(found) == 1 {
			text, _ = found[0].(string)
		}
		before, last, _ := strings.Cut(text, " ")
		if r.before = last; last == r.id {
			r.before = before
		}
		return r, nil
	})
}

// guard decides whether a run may vote.
//
// Its uptime is counted from what the server says, by its wall clock; and where
// that cannot be, since another run of it was heard of later, from now.
func (n *node) guard(r run, asked time.Time) error {
	var guardFor time.Duration // if it begins now
	n.mu.Lock()
	if n.run.id != r.id {
		// Two whole seconds make the uptime, that of the start and that of now, so it is up to one too long.
		up, kept := max(r.uptime-time.Second, 0), r.durable && r.before != ""
		if n.run.id != "" {
			if up > asked.Sub(n.voted) {
				up = 0 // its clock was stepped forward
			}
			// The guard needs what the run before has kept: all that it wrote, if it was
			// told to, and if what is found is its note and not that of one before.
			kept = kept && n.run.durable && (!n.run.noted || r.before == n.run.id)
		}
		n.run = r
		n.guardUntil = time.Time{}
		if whole := n.b.opts.MaxTTL; !n.b.opts.NoRestartGuard && !kept && up < whole {
			// From the end of the look, not from its beginning: later is safer.
			guardFor = whole - up
			n.guardUntil = time.Now().Add(guardFor)
		}
	}
	n.voted = asked
	var err error
	if time.Now().Before(n.guardUntil) {
		err = n.guarded()
	}
	n.mu.Unlock()
	if guardFor > 0 { // the Logger may take its time, or ask for a lock
		n.b.opts.Logger.Info("redlock: a node was started lately and does not vote yet", "node", n.Addr, "for", guardFor)
	}
	return err
}

// guarded is the error while the guard holds. n.mu is held.
func (n *node) guarded() error { return &guardedError{n.Addr, n.guardUntil, n.b.opts.MaxTTL} }

//go:embed note.lua
var noteText string

// prepare gives the server its scripts. From then on a vote is either that run's,
// or fails with errRestarted. The error is errRestarted if it is another run that
// answers now. It also leaves the note of a durable run, by which the next run can
// prove that it has kept the data.
func (n *node) prepare(ctx context.Context, r run) (*scripts, error) {
	s := n.newScripts(r)
	lasting := "volatile"
	if r.durable {
		lasting = "durable"
	}
	noted, err := redisnode.Ask(ctx, n.Node, "prepare", n.client(), func(ctx context.Context, c *redis.Client) (bool, error) {
		// One connection leads to one run of a server. The run is asked for first: another
		// run that got these scripts would vote for locks that it has forgotten, and another
		// run with this note would pass for one that has kept its data.
		conn := c.Conn()
		defer func() { _ = conn.Close() }()
		if err := n.answersAs(conn.Info(ctx, "server"), r); err != nil {
			return false, err
		}
		pipe := conn.Pipeline()
		load := pipe.ScriptLoad(ctx, s.vote.Text())
		loadRepair := pipe.ScriptLoad(ctx, s.repair.Text())
		for _, text := range n.Meet(r.id) {
			pipe.ScriptLoad(ctx, text)
		}
		note := pipe.Eval(ctx, noteText, []string{redisnode.RunsKey}, r.id, lasting)
		info := pipe.Info(ctx, "server")
		_, execErr := pipe.Exec(ctx)
		if err := cmp.Or(load.Err(), loadRepair.Err()); err != nil {
			return false, err
		}
		if err := n.answersAs(info, r); err != nil {
			if execErr != nil && info.Val() == "" {
				return false, execErr // no connection: the commands themselves do not say so
			}
			return false, err
		}
		if !r.durable {
			return false, note.Err() // a note that could not be removed would speak for this run
		}
		return note.Err() == nil, nil // an error proves nothing later, and that is all
	})
	if errors.Is(err, errRestarted) {
		err = errRestarted
	}
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.run.id == r.id {
		n.run.noted = noted
	}
	return s, nil
}

// answersAs is errRestarted if the INFO is not of run r.
func (n *node) answersAs(info *redis.StringCmd, r run) error {
	if info.Err() != nil {
		return info.Err()
	}
	if redisnode.ParseInfo(n.Addr, info.Val()).RunID != r.id {
		return errRestarted
	}
	return nil
}

func (n *node) newScripts(r run) *scripts {
	mode := "none"
	if n.b.opts.Fencing {
		mode = "tokens"
	}
	return &scripts{vote: redisnode.NewScript(4, mode, voteText).Strict(r.id),
		repair: redisnode.NewScript(3, "", repairText).Strict(r.id)}
}

func (n *node) client() *redis.Client { return n.Client().(*redis.Client) }

// compare warns, once, of a lock that lasts longer than any should: then this
// client's guard is too short for the locks of another.
func (n *node) compare(said redisnode.Outcome) {
	o, left := &n.b.opts, redisnode.LeftOf(said.Answer.N)
	if said.Err != nil || said.Answer.Code != redisnode.Held || left <= o.MaxTTL+driver.Drift(o.MaxTTL) ||
		o.NoRestartGuard || n.b.warned.Swap(true) {
		return
	}
	o.Logger.Warn("redlock: a lock lasts longer than MaxTTL: another client has a longer one, or a clock "+
		"was set back; the restart guard needs the same MaxTTL in all clients",
		"node", n.Addr, "left", left, "MaxTTL", o.MaxTTL)
}

// register notes which server a node leads to, and refuses one that another node
// leads to: that node is its twin, and one vote would count twice.
//
// From here on the server before is free for other nodes. This one has no scripts of it
// any more: it is looked at when it has none. Without that, two servers that changed
// addresses would be taken for each other's twins for ever: now whichever node is looked
// at last finds its server free, and the other does with its next look.
func (b *Backend) register(n *node, runID string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, i := range b.runs {
		if i == n.index && id != runID {
			delete(b.runs, id)
		}
	}
	if i, ok := b.runs[runID]; ok && i != n.index {
		d := &duplicateError{b.nodes[i].Addr, n.Addr}
		n.twin.Store(d)
		return d
	}
	n.twin.Store(nil)
	b.runs[runID] = n.index
	return nil
}
