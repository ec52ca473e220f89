package slots

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/clock"
)

// turnTime is the shortest time between two requests in turn for one Locker, over all calls of the
// process. Otherwise each of a thousand calls with a hundred names would ask a hundred times a second.
const turnTime = 10 * time.Millisecond

// turns are shared by all calls that have the same Locker.
type turns struct {
	users int           // guarded by the mutex of allTurns
	taker chan struct{} // full while a call waits for its turn
	next  time.Time     // no request before it; guarded by taker
}

var allTurns = struct {
	sync.Mutex
	of map[locker.Locker]*turns
}{of: map[locker.Locker]*turns{}}

// turnsOf returns the turns of l, which end when all calls have left. If l is not comparable, the call
// gets turns of its own.
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

// take waits for a turn. A call whose ctx ends meanwhile takes none.
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
