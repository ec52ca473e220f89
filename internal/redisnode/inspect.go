package redisnode

import (
	"context"
	"strconv"
	"time"
)

// Status is what Inspect saw.
type Status struct {
	Held    bool
	Value   string        // the holder's whole owner value
	Left    time.Duration // the rest of its TTL; negative: it never expires
	Foreign bool          // the key is there but is no lock (not a string)
	Token   uint64        // the highest token handed out for this name and still remembered; 0: none
	Waited  bool          // somebody waits, and will be woken by the release
}

// Inspect reads the state of a lock from the master, in one round trip, and changes nothing.
func (n *Node) Inspect(ctx context.Context, name string) (Status, error) {
	const op = "inspect"
	key := LockKey(name)
	c := newCall(n.scripts.inspect, n.scripts.inspect.command(3, key, key+fenceSuffix, key+waitSuffix))
	if err := n.do(ctx, op, name, c); err != nil {
		return Status{}, err
	}
	defer c.recycle()
	v, ok := c.cmd.Val().([]any)
	if !ok || len(v) != 4 {
		return Status{}, n.strange(op, c.cmd.Val())
	}
	left, ok1 := v[1].(int64)
	waited, ok2 := v[3].(int64)
	if !ok1 || !ok2 {
		return Status{}, n.strange(op, v)
	}
	var s Status
	const none = -2 // PTTL's word for a key that is not there
	s.Value, s.Held = v[0].(string)
	s.Foreign = !s.Held && left != none
	if s.Held || s.Foreign {
		s.Left = time.Duration(left) * time.Millisecond
	}
	if counter, ok := v[2].(string); ok {
		s.Token, _ = strconv.ParseUint(counter, 10, 64)
	}
	s.Waited = waited == 1
	return s, nil
}
