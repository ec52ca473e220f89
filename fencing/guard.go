package fencing

import (
	"context"
	"sync"
	"time"
)

// Guard protects state that this process owns: it allows a write only if it has seen
// no higher token for the resource. The zero value is ready to use. Its methods may
// be called from many goroutines at once. A Guard must not be copied.
//
// The marks are in memory, and end with the process. So the state must end with the
// process too; state that outlives the process needs a guard in its own store.
type Guard struct {
	// Keep is how long a mark is remembered after its last use, so that the number
	// of marks does not grow for ever; 0: for ever. When a mark is forgotten, a token
	// of any age passes: choose a time longer than any holder can be paused. Set
	// Keep before the first use of the Guard.
	Keep time.Duration

	mu    sync.Mutex
	marks map[string]mark
	turns map[string]*turn
	sweep int // the number of marks above which old ones are removed
}

type mark struct {
	token Token
	used  time.Time
}

// turn is the queue of the writes to one resource.
type turn struct {
	free  chan struct{} // holds one element when nobody writes
	users int           // the writer and the callers that wait
}

// Do calls write if token is not lower than the highest token that it has accepted
// for resource, and remembers token. Writes to one resource happen one at a time; Do
// waits for its turn until ctx is done, and does nothing then. resource is a name for the state that is
// written. The name of the lock that protects it is a good choice, since tokens of
// different locks must not meet in one mark.
//
// If the token is too low, the error is a [*StaleError], and write is not called. If
// write returns an error, it must have written nothing: the mark stays where it was,
// and Do returns that error. If write panics, Do cannot know what was written, and
// the mark moves.
func (g *Guard) Do(ctx context.Context, resource string, token Token, write func() error) (err error) {
	if err = token.Check(); err != nil {
		return Admit(resource, token, 0)
	}
	if err = g.enter(ctx, resource); err != nil {
		return err
	}
	moved := true // unless it is known that nothing was written
	defer func() { g.leave(resource, token, moved) }()
	if err = Admit(resource, token, g.mark(resource)); err == nil {
		err = context.Cause(ctx) // the turn may have come although the caller had already given up
	}
	if err == nil && write != nil {
		err = write()
	}
	moved = err == nil
	return err
}

// Raise moves the mark of resource up to token and writes nothing. After it has
// returned, no write with a lower token can happen. A holder calls it before it
// reads the state on which its write depends.
func (g *Guard) Raise(ctx context.Context, resource string, token Token) error {
	return g.Do(ctx, resource, token, nil)
}

// Mark returns the highest token that was accepted for resource, or false if there
// was none.
func (g *Guard) Mark(resource string) (Token, bool) {
	m := g.mark(resource)
	return m, m != 0
}

// Forget removes the mark of a resource that is no more.
func (g *Guard) Forget(resource string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.marks, resource)
}

func (g *Guard) mark(resource string) Token {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.marks[resource]
	if g.old(m, time.Now()) {
		return 0
	}
	return m.token
}

// enter waits until nobody else writes to resource.
func (g *Guard) enter(ctx context.Context, resource string) error {
	g.mu.Lock()
	t := g.turns[resource]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		if g.turns == nil {
			g.turns = make(map[string]*turn)
		}
		g.turns[resource] = t
	}
	t.users++
	g.mu.Unlock()
	select {
	case <-t.free:
		return nil
	default:
	}
	select {
	case <-t.free:
		return nil
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		g.dismiss(resource, t)
		return context.Cause(ctx)
	}
}

func (g *Guard) leave(resource string, token Token, moved bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if moved {
		now := time.Now()
		if g.marks == nil {
			g.marks = make(map[string]mark)
		}
		g.marks[resource] = mark{token, now}
		g.forgetOld(now)
	}
	t := g.turns[resource]
	t.free <- struct{}{}
	g.dismiss(resource, t)
}

// dismiss removes one user of a turn. The caller holds g.mu.
func (g *Guard) dismiss(resource string, t *turn) {
	if t.users--; t.users == 0 {
		delete(g.turns, resource)
	}
}

// forgetOld removes old marks whenever the number of marks has doubled, so that the
// cost is spread over the writes. The caller holds g.mu.
func (g *Guard) forgetOld(now time.Time) {
	const few = 64
	if g.Keep <= 0 || len(g.marks) <= max(g.sweep, few) {
		return
	}
	for resource, m := range g.marks {
		if g.old(m, now) {
			delete(g.marks, resource)
		}
	}
	g.sweep = 2 * len(g.marks)
}

func (g *Guard) old(m mark, now time.Time) bool {
	return g.Keep > 0 && now.Sub(m.used) > g.Keep
}
