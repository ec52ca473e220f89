package conformance_test

import (
	"context"
	"time"
)

// listen arranges for wake to be called when the service tells of name.
func (c *client) listen(name string, wake func()) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wakers[name] == nil {
		c.wakers[name] = make(map[*func()]struct{})
	}
	c.wakers[name][&wake] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.wakers[name], &wake)
		if len(c.wakers[name]) == 0 {
			delete(c.wakers, name)
		}
	}
}

// wake wakes those who listen for name.
func (c *client) wake(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for heard := range c.wakers {
		if c.service().key(heard) == name {
			for wake := range c.wakers[heard] {
				(*wake)()
				if c.service().flaw == wakesOne {
					break
				}
			}
		}
	}
}

// wakeAll wakes everybody, who may have missed something.
func (c *client) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, wakers := range c.wakers {
		for wake := range wakers {
			(*wake)()
		}
	}
}

type notifier client

// Notify subscribes. The simulated service tells everything to everybody, so
// that there is nothing to ask for but whether it is there.
func (n *notifier) Notify(ctx context.Context, name string, wake func()) (stop func(), err error) {
	c := (*client)(n)
	if c.service().flaw == subscribesLate {
		time.AfterFunc(50*time.Millisecond, func() { c.listen(name, wake) })
		return func() {}, nil
	}
	stop = c.listen(name, wake)
	if _, err := c.net.call(ctx, func() any { return nil }); err != nil {
		stop()
		return nil, err
	}
	if c.service().flaw == subscribesToNothing {
		stop()
		return func() {}, nil
	}
	if c.service().flaw == stopWaits {
		unlisten := stop
		return func() {
			unlisten()
			_, _ = c.net.call(context.Background(), func() any { return nil })
		}, nil
	}
	return stop, nil
}
