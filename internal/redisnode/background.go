package redisnode

import (
	"context"
	"errors"
	"time"
)

// maxBackground bounds the questions outside of lanes that a server that hangs can hold.
const maxBackground = 4

// inBackground calls ask in a goroutine of its own, so that the caller returns when its ctx ends or the Node's timeout has passed, whatever the
// driver does (R8). ask changes nothing on the server, so that it does not matter if it is still on its way then.
func inBackground[T any](n *Node, ctx context.Context, ask func() (T, error)) (T, *Error) {
	var none T
	stop := time.NewTimer(n.opts.Timeout)
	defer stop.Stop()
	fail := func(err error) (T, *Error) { return none, &Error{Addr: n.addr, Err: err} }

	select {
	case n.background <- struct{}{}:
	case <-stop.C:
		return fail(ErrTimeout)
	case <-ctx.Done():
		return fail(ctx.Err())
	case <-n.ctx.Done():
		return fail(ErrClosed)
	}
	type result struct {
		answer T
		err    error
	}
	done := make(chan result, 1)
	if !n.start(func() {
		answer, err := ask()
		<-n.background
		done <- result{answer, err}
	}) {
		<-n.background
		return fail(ErrClosed)
	}

	select {
	case r := <-done:
		if r.err == nil {
			return r.answer, nil
		}
		err := failed("", n.addr, r.err)
		err.Unknown = false
		return none, err
	case <-stop.C:
		return fail(ErrTimeout)
	case <-ctx.Done():
		return fail(ctx.Err())
	case <-n.ctx.Done():
		return fail(ErrClosed)
	}
}

// start runs f in a goroutine that Close waits for; false: the Node is closed.
func (n *Node) start(f func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.goroutines.Go(f)
	return true
}

// closeWait is how long Close waits for calls of the driver that were under way.
const closeWait = time.Second

// End is the beginning of Close, which does not wait: it ends all requests and subscriptions with ErrClosed. Who closes the client as well does that
// between End and Close: whoever waits for an answer has ErrClosed by then and not what becomes of a closed client, and calls of the driver that hang end.
func (n *Node) End() {
	n.mu.Lock()
	ended := n.closed
	n.closed = true
	n.mu.Unlock()
	if ended {
		return
	}
	n.cancel()
	for _, r := range n.routes.all() {
		r.close()
	}
}

// Close ends all requests and subscriptions with ErrClosed and waits for the goroutines of the Node, but not longer than a second for calls of
// the driver that hang: then the error says so, and they end with the driver's time-outs, or at once when the client is closed. It leaves the client
// open. Closing again waits again, and changes nothing.
func (n *Node) Close() error {
	n.End()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.goroutines.Wait()
		for _, r := range n.routes.all() {
			r.plain.workers.Wait()
			r.acked.workers.Wait()
		}
	}()
	wait := time.NewTimer(closeWait)
	defer wait.Stop()
	select {
	case <-ended:
		return nil
	case <-wait.C:
		return &Error{Op: "close", Addr: n.addr, Err: errors.New("the server does not answer a request that was under way; its goroutine ends with the driver's time-out")}
	}
}
