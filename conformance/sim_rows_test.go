package conformance_test

import (
	"context"
	"time"
)

// queueForRow waits for the transaction of another client that has locked the row of name.
func (c *client) queueForRow(ctx context.Context, name string) error {
	for {
		free := false
		c.service().do(func() {
			by := c.service().rows[c.service().key(name)]
			free = by == nil || by == c || by.isClosed()
		})
		if free {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// keepRow leaves the transaction of c open.
func (c *client) keepRow(name string, because flaw) {
	if c.service().flaw == because {
		c.service().do(func() { c.service().rows[c.service().key(name)] = c })
	}
}
