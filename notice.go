package locker

import "context"

// notice is how the head of a line is told by a [Notifier] when to ask again.
// The poll goes on while Notify has not answered, however long that takes:
// progress never rests on it (R14).
type notice struct {
	wake   chan struct{}     // told by the backend
	reply  *handover[func()] // of the Notify that is under way; nil: none is
	cancel context.CancelFunc
	stop   func() // ends what Notify began; nil: it has not
}

// begin calls Notify in the background, unless that was done.
func (n *notice) begin(ctx context.Context, c *Client, name string) {
	notifier, ok := c.backend.(Notifier)
	if !ok || n.stop != nil || n.reply != nil {
		return
	}
	wake, reply := make(chan struct{}, 1), newHandover[func()]()
	ctx, n.cancel = context.WithCancel(ctx)
	n.wake, n.reply = wake, reply
	c.asking.add()
	go func() {
		defer c.asking.done()
		stop, err := notifier.Notify(ctx, name, func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		})
		if err != nil {
			stop = nil
		}
		if !reply.deliver(stop) && stop != nil {
			stop()
		}
	}()
}

// answer brings what Notify returned, once; nil if it failed.
func (n *notice) answer() <-chan func() {
	if n.reply == nil {
		return nil
	}
	return n.reply.value
}

// begun takes the answer, and reports whether the backend tells from now on.
func (n *notice) begun(stop func()) bool {
	n.cancel()
	n.reply, n.stop = nil, stop
	return stop != nil
}

func (n *notice) end() {
	if n.reply != nil {
		n.cancel()
		n.stop, _ = n.reply.leave()
	}
	if n.stop != nil {
		n.stop()
	}
}
