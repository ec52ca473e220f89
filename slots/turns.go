package slots

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/clock"
)

// turnTime is the shortest time between two requests in turn for one Locker, of all calls of the process: each of a
// thousand calls with a hundred names would ask a hundred times a second otherwise.
const turnTime = 10 * time.Millisecond

// turns are those of all calls that have the same Locker.
type turns struct {
	users int           // guarded by the mutex of allTurns
	taker chan struct{} // has room for the call that is next
	next  time.Time     // no request before it; guarded by taker
}

var allTurns = struct {
	sync.Mutex
	of map[locker.Locker]*turns
}{of: map[locker.Locker]*turns{}}

// turnsOf returns the turns of l, which end when all have left. Those of a Locker that cannot be compared with
// others are the call's own.
func turnsOf(l locker.Locker) (t *turns, leave func()) {
	if !reflect.ValueOf(l).Comparable() {
		return &turns{taker: make(chan struct{}, 1)}, func() {}
	}
	allTurns.Lock()
	defer allTurns.Unlock()
	t = allTurns.of[l]
	if t == nil {
		t = &turns{taker: make(chan struct{}, 1)}
		allTurns.of[l] = t
	}
	t.users++
	return t, func() {
		allTurns.Lock()
		defer allTurns.Unlock()
		if t.users--; t.users == 0 {
			delete(allTurns.of, l)
		}
	}
}

// take waits for a turn. Whoever leaves meanwhile takes none.
func (t *turns) take(ctx context.Context) error {
	select {
	case t.taker <- struct{}{}:
		defer func() { <-t.taker }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := clock.Sleep(ctx, time.Until(t.next))
	if err == nil {
		t.next = time.Now().Add(turnTime)
	}
	return err
}
