// Command zookeeper guards a node of ZooKeeper. The lock may be in the same ZooKeeper or anywhere else.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/examples/internal/story"
	"github.com/golockers/locker/fencing"
)

// Guard lets ZooKeeper transactions happen only if no higher token was accepted for their resource. The
// node /fencing, below which only guards write, must exist.
type Guard struct{ Conn *zk.Conn }

// Multi carries out ops in one transaction, and moves the mark with them. If the lock is in the same
// ZooKeeper, a *zk.CheckVersionRequest{Path: of zookeeper.Node, Version: -1} before them refuses a late
// write even without a later holder. The driver takes no contexts and may send ops after Multi has
// given up, so do not change them afterwards.
func (g Guard) Multi(ctx context.Context, resource string, token fencing.Token, ops ...any) error {
	if err := fencing.Check(resource, token); err != nil {
		return err
	}
	for {
		again, err := false, error(nil)
		done := make(chan struct{})
		go func() { defer close(done); again, err = g.once(ctx, resource, token, ops) }()
		select {
		case <-done:
			if !again {
				return err
			}
		case <-ctx.Done():
			return fencing.Failed(ctx, fmt.Sprintf("zookeeper: write to %q", resource), ctx.Err(), fencing.Unknown)
		}
	}
}

func (g Guard) once(ctx context.Context, resource string, token fencing.Token, ops []any) (again bool, err error) {
	op := fmt.Sprintf("zookeeper: write to %q", resource)
	path, data := "/fencing/mark-"+url.PathEscape(resource), []byte(token.String())
	var move any
	switch text, stat, err := g.Conn.Get(path); {
	case ctx.Err() != nil: // write nothing for a caller that has given up
		return false, fencing.Failed(ctx, op, ctx.Err(), fencing.Unsent)
	case errors.Is(err, zk.ErrNoNode):
		move = &zk.CreateRequest{Path: path, Data: data, Acl: zk.WorldACL(zk.PermAll)}
	case errors.Is(err, zk.ErrNoAuth):
		return false, fencing.Failed(ctx, op, err, fencing.Refused)
	case err != nil:
		return false, fencing.Failed(ctx, op, err, fencing.Unsent)
	case stat.Version == -1: // after 2³² writes; the server takes -1 for any version
		return false, fmt.Errorf("%s: %s was written too often: set it once more by hand", op, path)
	default:
		mark, err := fencing.Parse(string(text))
		// The server may be behind, but marks only rise.
		if err = errors.Join(err, fencing.Admit(resource, token, mark)); err != nil {
			return false, err
		}
		move = &zk.SetDataRequest{Path: path, Data: data, Version: stat.Version}
	}
	results, err := g.Conn.Multi(append([]any{move}, ops...)...)
	for i, r := range results {
		if r.Error != nil { // the first error is the reason: nothing was written, and the mark has not moved
			lookAgain := errors.Is(r.Error, zk.ErrBadVersion) || errors.Is(r.Error, zk.ErrNodeExists)
			return i == 0 && lookAgain, fmt.Errorf("%s: operation %d: %w", op, i, r.Error)
		}
	}
	return false, fencing.Failed(ctx, op, err, fencing.Unknown)
}

func main() {
	conn, _, err := zk.Connect([]string{"localhost:2181"}, 10*time.Second, zk.WithLogInfo(false))
	story.Must(err)
	for _, path := range []string{"/fencing", "/order-42"} {
		if _, err = conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); !errors.Is(err, zk.ErrNodeExists) {
			story.Must(err)
		}
	}
	guard := Guard{conn}
	story.Tell(context.Background(), "zookeeper://localhost:2181?ttl=10s", story.Order{
		Raise: func(ctx context.Context, resource string, token fencing.Token) error {
			return guard.Multi(ctx, resource, token)
		},
		Set: func(ctx context.Context, token fencing.Token, state string) error {
			return guard.Multi(ctx, story.Lock, token,
				&zk.SetDataRequest{Path: "/order-42", Data: []byte(state), Version: -1})
		},
		Get: func(context.Context) (string, error) {
			data, _, err := conn.Get("/order-42")
			return string(data), err
		},
	})
}
