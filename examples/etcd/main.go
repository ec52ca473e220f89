// Command etcd guards a key of etcd. Here the lock is in the same etcd; it could be anywhere.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/golockers/locker"
	"github.com/golockers/locker/examples/internal/story"
	"github.com/golockers/locker/fencing"
)

// Guard lets etcd transactions happen only if no higher token was accepted for their resource. Give its
// Client DialKeepAliveTime and DialKeepAliveTimeout, or it notices a network that drops packets only
// after minutes.
type Guard struct{ Client *clientv3.Client }

// Commit carries out ops in one transaction, and moves the mark with them. All of cmps must hold as
// well: if the lock is in the same etcd, pass the comparison of etcd.Held, which refuses a late write
// even without a later holder. Only the guard may write below fencing/.
func (g Guard) Commit(
	ctx context.Context, resource string, token fencing.Token, cmps []clientv3.Cmp, ops ...clientv3.Op,
) error {
	if err := fencing.Check(resource, token); err != nil {
		return err
	}
	// etcd compares byte by byte, so each token has as many digits as the longest. A comparison with a
	// missing mark is false.
	mark, text := "fencing/"+url.PathEscape(resource), fmt.Sprintf("%020d", token)
	resp, err := g.Client.Txn(ctx).
		If(clientv3.Compare(clientv3.Value(mark), ">", text)).
		Then(clientv3.OpGet(mark)).
		Else(clientv3.OpTxn(cmps, append([]clientv3.Op{clientv3.OpPut(mark, text)}, ops...), nil)).
		Commit()
	outcome, said := fencing.Unknown, rpctypes.EtcdError{}
	if errors.As(err, &said) {
		switch said.Code() {
		case codes.PermissionDenied, codes.InvalidArgument, codes.NotFound: // other errors leave it open, or pass
			outcome = fencing.Refused
		}
	}
	switch {
	case err != nil:
		return fencing.Failed(ctx, fmt.Sprintf("etcd: write to %q", resource), err, outcome)
	case resp.Succeeded:
		digits := string(resp.Responses[0].GetResponseRange().Kvs[0].Value)
		higher, err := fencing.Parse(strings.TrimLeft(digits, "0"))
		if err != nil {
			return fmt.Errorf("etcd: the mark %s: %w", mark, err)
		}
		return &fencing.StaleError{Resource: resource, Token: token, Mark: higher}
	case !resp.Responses[0].GetResponseTxn().Succeeded:
		return fmt.Errorf("etcd: write to %q: %w", resource, locker.ErrLost)
	}
	return nil
}

// Raise moves the mark and writes nothing.
func (g Guard) Raise(ctx context.Context, resource string, token fencing.Token) error {
	return g.Commit(ctx, resource, token, nil)
}

func main() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"},
		DialTimeout: 5 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second})
	story.Must(err)
	guard := Guard{client}
	story.Tell(context.Background(), "etcd://localhost:2379", story.Order{
		Raise: guard.Raise,
		Set: func(ctx context.Context, token fencing.Token, state string) error {
			return guard.Commit(ctx, story.Lock, token, nil, clientv3.OpPut("orders/42/state", state))
		},
		Get: func(ctx context.Context) (string, error) {
			resp, err := client.Get(ctx, "orders/42/state")
			if err != nil || len(resp.Kvs) == 0 {
				return "", err
			}
			return string(resp.Kvs[0].Value), nil
		},
	})
}
