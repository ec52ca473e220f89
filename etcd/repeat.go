package etcd

import (
	"context"
	"sync"
	"time"
)

const (
	// repeatAfter is how long a request that may be repeated waits for its
	// answer alone. The driver takes turns among the members: the next one goes
	// to another, and a member that hangs costs this and not a time-out.
	repeatAfter = 300 * time.Millisecond
	copies      = 3
)

// repeated makes one request, and the same again while there is no answer.
// It is for requests that can be carried out more than once, and at any
// time later. more tells that they may have been.
func repeated[T any](ctx context.Context, b *Backend, request func(context.Context) (T, error)) (answer T, more bool, err error) {
	err = b.call(ctx, func(ctx context.Context) error {
		first, cancel := context.WithCancel(ctx)
		defer cancel()
		var mu sync.Mutex
		var next *alarm
		started, over, won := 1, false, false
		var another func()
		arm := func() { next = b.alarms.after(repeatAfter, func() { b.spawn(another) }) }
		another = func() {
			mu.Lock()
			if over {
				mu.Unlock()
				return
			}
			if started++; started < copies {
				arm()
			}
			mu.Unlock()
			a, err := request(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && !over && !won {
				answer, won = a, true
				cancel()
			}
		}
		mu.Lock()
		arm()
		mu.Unlock()
		a, err := request(first)
		mu.Lock()
		defer mu.Unlock()
		over, more = true, started > 1
		b.alarms.off(next)
		if won {
			return nil
		}
		answer = a
		return err
	})
	return answer, more, err
}
