package single

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/internal/redisconn"
	"github.com/golockers/locker/internal/rediswake"
)

// Node is what a Backend asks, request by request, for the tests of what goes to
// the server and comes back.
type Node struct {
	*server
	*rediswake.Wakes
	opts NodeOptions
}

type NodeOptions struct {
	Timeout time.Duration
}

func NewNode(client redis.UniversalClient, opts *NodeOptions) (*Node, error) {
	n := &Node{opts: NodeOptions{Timeout: 10 * time.Second}}
	if opts != nil {
		n.opts = *opts
	}
	if n.opts.Timeout == 0 {
		n.opts.Timeout = 10 * time.Second
	}
	conn, err := redisconn.New(client, n.opts.Timeout)
	if err != nil {
		return nil, err
	}
	n.server = newServer(conn)
	n.Wakes = rediswake.New(conn, rediswake.Options{})
	return n, nil
}

func keys(name, value string) *redisconn.Keys {
	k := redisconn.KeysOf(name, value, "", "")
	return &k
}

type Request struct {
	Name, Value    string
	TTL            time.Duration
	Waiting        bool
	Replicas       int
	ReplicaTimeout time.Duration
}

type Answer struct {
	Granted, Again, Foreign, Void, Repeated bool

	Lost, Turn bool // of Pass

	Token    uint64
	Left     time.Duration
	Replicas int
}

func (n *Node) Acquire(ctx context.Context, r Request) (Answer, error) {
	a, err := n.acquire(ctx, keys(r.Name, r.Value),
		request{ttl: r.TTL, waiting: r.Waiting, replicas: r.Replicas, replicaTime: r.ReplicaTimeout})
	return exported(a), err
}

func exported(a answer) Answer {
	return Answer{
		Granted: a.granted, Again: a.again, Foreign: a.foreign, Void: a.void, Repeated: a.repeated,
		Token: a.token, Left: a.left, Replicas: a.replicas,
		Lost: a.lost, Turn: a.turn,
	}
}

// ReadValue reads what stands in a lock's key.
func ReadValue(text string) (token uint64, owner string) {
	v := readValue(text)
	return v.token, v.owner
}

// Me is how n is called among those who wait.
func (n *Node) Me() string { return n.me }

func (n *Node) Pass(ctx context.Context, name, old, next string, ttl time.Duration, yield bool) (Answer,
	error) {
	a, err := n.pass(ctx, keys(name, old), keys(name, next), ttl, yield)
	return exported(a), err
}

func (n *Node) Renew(ctx context.Context, name, value string, ttl time.Duration) (redisconn.State, error) {
	return n.renew(ctx, keys(name, value), ttl)
}

func (n *Node) Release(ctx context.Context, name, value string) (redisconn.State, error) {
	return n.release(ctx, keys(name, value))
}

func (n *Node) TakeBack(ctx context.Context, name, value string, void time.Duration) (redisconn.State,
	error) {
	return n.takeBack(ctx, keys(name, value), void)
}

func (n *Node) Inspect(ctx context.Context, name string) (redisconn.Status, error) {
	return n.inspect(ctx, name)
}

// Alter changes the texts of the scripts.
func (n *Node) Alter(change func(text string) string) {
	for _, s := range []**redisconn.Script{&n.acquireScript, &n.passScript, &n.releaseScript} {
		*s = redisconn.NewScript(change((*s).Text()))
	}
}
