package fencing

import (
	"context"
	"sync"
	"time"
)

// Guard protects state that this process owns: it lets a write happen only if
// no higher token has been seen for its resource. The zero value is ready.
// Its methods may be called from many goroutines at once. It must not be
// copied.
//
// Its marks are in memory, so they are as durable as the state that they
// protect must be: state that outlives the process needs a guard in the store
// that keeps it.
type Guard struct {
	// Keep is how long the mark of a resource is remembered after it was last
	// used, so that marks do not grow for ever; 0: for ever. Once a mark is
	// forgotten, a token of any age passes: choose a time longer than any
	// holder can be paused. Set it before the first use.
	Keep time.Duration

	mu    sync.Mutex
	marks map[string]mark
	turns map[string]*turn
	sweep int // how many marks there may be before old ones are looked for
}

type mark struct {
	token Token
	used  time.Time
}

// turn is a write under way, and those who wait for theirs.
type turn struct {
	free  chan struct{} // holds one element when nobody writes
	users int
}

// Do calls write if token is not lower than the highest that Do has accepted
// for resource, and remembers it. Writes to one resource happen one at a time;
// Do waits for its turn until ctx is done. resource is a name for what is
// written; that of the lock that protects it is a good one, since tokens of
// different locks must not meet in one mark.
//
// A token that is too low is a [*StaleError], and write is not called. If
// write returns an error, it says that it wrote nothing: the mark stays where
// it was, and Do returns that error. If write panics, what it did is not
// known, and the mark moves.
func (g *Guard) Do(ctx context.Context, resource string, token Token, write func() error) (err error) {
	if err = token.Check(); err != nil {
		return Admit(resource, token, 0)
	}
	if err = g.enter(ctx, resource); err != nil {
		return err
	}
	moved := true // unless it is known that nothing was written
	defer func() { g.leave(resource, token, moved) }()
	if err = Admit(resource, token, g.mark(resource)); err == nil && write != nil {
		err = write()
	}
	moved = err == nil
	return err
}

// Raise moves the mark of resource up to token and writes nothing. When it has
// returned, no write with a lower token can happen any more. A holder calls it
// before it reads what its write depends on.
func (g *Guard) Raise(ctx context.Context, resource string, token Token) error {
	return g.Do(ctx, resource, token, nil)
}

// Mark returns the highest token that was accepted for resource. It is false
// if there was none.
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

// dismiss counts one user of a turn less. g.mu is held.
func (g *Guard) dismiss(resource string, t *turn) {
	if t.users--; t.users == 0 {
		delete(g.turns, resource)
	}
}

// forgetOld removes old marks whenever their number has doubled, so that what
// it costs is spread over the writes. g.mu is held.
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
