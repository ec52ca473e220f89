package etcd_test

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/contest"
	"github.com/golockers/locker/internal/lab"
)

var contenders = contest.Contenders{
	Locker: driven(func(client *clientv3.Client, _ int) (contest.Op, func(), error) {
		return contest.OfBackend(etcd.New(client, nil))
	}),
	Name:   "concurrency",
	Theirs: driven(mutexContender),
	Raw:    driven(rawContender),
}

// driven is a contender on a driver's client.
func driven(c func(client *clientv3.Client, goroutines int) (contest.Op, func(), error)) contest.Contender {
	return func(servers []string, goroutines int) (contest.Op, func(), error) {
		client, err := clientv3.New(clientv3.Config{Endpoints: servers, Logger: zap.NewNop()})
		if err != nil {
			return nil, nil, err
		}
		op, done, err := c(client, goroutines)
		return op, func() { done(); _ = client.Close() }, err
	}
}

// mutexContender gives each goroutine a session of its own, or two of them
// would hold the lock at once.
func mutexContender(client *clientv3.Client, goroutines int) (contest.Op, func(), error) {
	sessions := make([]*concurrency.Session, goroutines)
	for i := range sessions {
		var err error
		if sessions[i], err = concurrency.NewSession(client, concurrency.WithTTL(600)); err != nil {
			return nil, nil, err
		}
	}
	return func(ctx context.Context, n int, name string) error {
			m := concurrency.NewMutex(sessions[n], "upstream/"+name)
			err := m.Lock(ctx)
			if err == nil {
				err = m.Unlock(ctx)
			}
			return err
		}, func() {
			for _, s := range sessions {
				_ = s.Close()
			}
		}, nil
}

// rawContender makes the two requests that do the least of it. Nobody waits
// here, and nothing is safe.
func rawContender(client *clientv3.Client, _ int) (contest.Op, func(), error) {
	lease, err := client.Grant(context.Background(), 600)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, _ int, name string) error {
		key := "raw/1/lock/" + name + "/0000000000000000000000000000000000000001"
		_, err := client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, "bench", clientv3.WithLease(lease.ID))).
			Commit()
		if err == nil {
			_, err = client.Delete(ctx, key)
		}
		return err
	}, func() {}, nil
}

// BenchmarkContest is the contest on an etcd that syncs what it writes, as all do that are
// in use, and on one that does not, where the smallest things show.
func BenchmarkContest(b *testing.B) {
	for of, sync := range map[string]string{"synced": "false", "unsynced": "true"} {
		b.Run(of, func(b *testing.B) {
			contenders.Run(b, lab.StartEtcd(b, 1, lab.WithConfig("unsafe-no-fsync", sync)).Addrs())
		})
	}
}
