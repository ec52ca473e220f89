package fencing

import (
	"context"
	"sync"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// Guard protects state that this process owns: it allows a write only if it has seen no higher token
// for the resource. The zero value is ready to use. Its methods may be called from many goroutines at
// once. Do not copy a Guard.
//
// The marks are in memory and end with the process. So the state must end with the process too; state
// that outlives it needs a guard in its own store.
type Guard struct {
	// Keep is how long a mark is remembered after its last use, so that the number of marks does not
	// grow forever; 0: forever. Once a mark is forgotten, a token of any age passes: choose a time
	// longer than any holder can be paused. Set Keep before the first use of the Guard.
	Keep time.Duration

	mu    sync.Mutex
	of    map[string]*guarded
	sweep int // the number of resources above which old ones are removed
}

// guarded is the mark of one resource, and the queue of writes to it.
type guarded struct {
	mark  Token
	used  time.Time
	free  chan struct{} // has one element when nobody writes
	users int           // the writer and the waiting callers
}

// Do calls write if token is not lower than the highest token that it has accepted for resource, and
// remembers token. Writes to one resource happen one at a time. Do waits for its turn until ctx is
// done; then it does nothing, and the error is that of ctx with its cause, such as the loss of the
// lease. resource is a name for the state that is written. The name of the lock that protects it is a
// good choice, because tokens of different locks must not share a mark.
//
// If the token is too low, the error is a [*StaleError], and write is not called. If write returns an
// error, it must have written nothing: the mark does not move, and Do returns that error. If write
// panics, Do cannot know what was written, and the mark moves.
func (g *Guard) Do(ctx context.Context, resource string, token Token, write func() error) (err error) {
	if err = Admit(resource, token, 0); err != nil {
		return err
	}
	r := g.user(resource)
	select {
	case <-r.free:
	default:
		select {
		case <-r.free:
		case <-ctx.Done():
			g.mu.Lock()
			defer g.mu.Unlock()
			g.dismiss(resource, r)
			return clock.Over(ctx)
		}
	}
	moved := true // unless it is known that nothing was written
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if moved {
			r.mark, r.used = token, time.Now()
			g.forgetOld(r.used)
		}
		r.free <- struct{}{} // after the mark has moved
		g.dismiss(resource, r)
	}()
	mark, _ := g.Mark(resource)
	if err = Admit(resource, token, mark); err == nil {
		err = clock.Over(ctx) // the turn may come after the caller has given up
	}
	if err == nil && write != nil {
		err = write()
	}
	moved = err == nil
	return err
}

// Raise moves the mark of resource up to token and writes nothing. After it has returned, no write with
// a lower token can happen. A holder calls it before reading the state on which its write depends.
func (g *Guard) Raise(ctx context.Context, resource string, token Token) error {
	return g.Do(ctx, resource, token, nil)
}

// Mark returns the highest token accepted for resource, or false if there is none.
func (g *Guard) Mark(resource string) (Token, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.of[resource]
	if r == nil || r.mark == 0 || g.old(r, time.Now()) {
		return 0, false
	}
	return r.mark, true
}

// Forget removes the mark of a resource that no longer exists.
func (g *Guard) Forget(resource string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.of[resource]; r != nil {
		r.mark = 0
		r.users++
		g.dismiss(resource, r)
	}
}

// user adds a user to the entry of a resource.
func (g *Guard) user(resource string) *guarded {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.of[resource]
	if r == nil {
		r = &guarded{free: make(chan struct{}, 1)}
		r.free <- struct{}{}
		if g.of == nil {
			g.of = make(map[string]*guarded)
		}
		g.of[resource] = r
	}
	r.users++
	return r
}

// dismiss removes one user. The caller holds g.mu.
func (g *Guard) dismiss(resource string, r *guarded) {
	if r.users--; r.users == 0 && r.mark == 0 {
		delete(g.of, resource)
	}
}

// forgetOld removes old marks whenever the number of resources has doubled, so that the cost is spread
// over the writes. The caller holds g.mu.
func (g *Guard) forgetOld(now time.Time) {
	const few = 64
	if g.Keep <= 0 || len(g.of) <= max(g.sweep, few) {
		return
	}
	for resource, r := range g.of {
		if r.users == 0 && g.old(r, now) {
			delete(g.of, resource)
		}
	}
	g.sweep = 2 * len(g.of)
}

func (g *Guard) old(r *guarded, now time.Time) bool {
	return g.Keep > 0 && now.Sub(r.used) > g.Keep
}
