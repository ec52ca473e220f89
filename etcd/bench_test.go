package etcd_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/contest"
	"github.com/golockers/locker/internal/lab"
)

// contender takes a lock and gives it back, on the n-th goroutine of its process.
type contender func(ctx context.Context, n int, name string) error

// contenders make one on a driver's client. What they open ends with done, or
// with ctx.
var contenders = map[string]func(ctx context.Context, driver *clientv3.Client, goroutines int) (
	c contender, done func(), err error,
){
	"locker":      lockerContender,
	"concurrency": mutexContender,
	"raw":         rawContender,
	"raw+write":   handOnContender,
}

func lockerContender(_ context.Context, driver *clientv3.Client, _ int) (contender, func(), error) {
	backend, err := etcd.New(driver, nil)
	if err != nil {
		return nil, nil, err
	}
	locks := locker.New(backend, nil)
	return func(ctx context.Context, _ int, name string) error {
		l, err := locks.Lock(ctx, name)
		if err == nil {
			err = l.Unlock(ctx)
		}
		return err
	}, func() { _ = locks.Close(); _ = backend.Close() }, nil
}

// mutexContender gives each goroutine a session of its own, or two of them
// would hold the lock at once.
func mutexContender(_ context.Context, driver *clientv3.Client, goroutines int) (contender, func(), error) {
	sessions := make([]*concurrency.Session, goroutines)
	for i := range sessions {
		var err error
		if sessions[i], err = concurrency.NewSession(driver, concurrency.WithTTL(600)); err != nil {
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
func rawContender(ctx context.Context, driver *clientv3.Client, _ int) (contender, func(), error) {
	lease, err := driver.Grant(ctx, 600)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, _ int, name string) error {
		key := "raw/1/lock/" + name + "/0000000000000000000000000000000000000001"
		_, err := driver.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, "bench", clientv3.WithLease(lease.ID))).
			Commit()
		if err == nil {
			_, err = driver.Delete(ctx, key)
		}
		return err
	}, func() {}, nil
}

// handOnContender is what handing a lock on may cost: one write more.
func handOnContender(ctx context.Context, driver *clientv3.Client, _ int) (contender, func(), error) {
	raw, done, err := rawContender(ctx, driver, 1)
	return func(ctx context.Context, n int, name string) error {
		if err := raw(ctx, n, name); err != nil {
			return err
		}
		_, err := driver.Put(ctx, "raw/1/write", "bench")
		return err
	}, done, err
}

// rival is a contender in a benchmark's process.
func rival(b *testing.B, kind string, addrs []string, goroutines int) contender {
	b.Helper()
	c, done, err := contenders[kind](b.Context(), dial(b, addrs), goroutines)
	require.NoError(b, err)
	b.Cleanup(done)
	for n := range goroutines {
		require.NoError(b, c(b.Context(), n, "warm"))
	}
	return c
}

// BenchmarkFree is the lock that nobody else wants: acquire and release, beside
// the two raw requests, on an etcd that syncs what it writes, as all do that are
// in use, and on one that does not, where the smallest things show.
func BenchmarkFree(b *testing.B) {
	free(b, "", synced(b))
	free(b, "unsynced,", lab.StartEtcd(b, 1))
}

func synced(b *testing.B) *lab.EtcdCluster {
	return lab.StartEtcd(b, 1, lab.WithConfig("unsafe-no-fsync", "false"))
}

func free(b *testing.B, of string, s *lab.EtcdCluster) {
	const most = 256
	raw, ours := rival(b, "raw", s.Addrs(), most), rival(b, "locker", s.Addrs(), most)
	theirs := rival(b, "concurrency", s.Addrs(), most)
	own := func(c contender) func(operations, goroutines int) error {
		return contest.On(func(n int) error { return c(b.Context(), n, "free-"+strconv.Itoa(n)) })
	}
	for _, n := range []int{1, 64, most} {
		contest.Run(b, fmt.Sprintf("%sgoroutines=%d", of, n),
			contest.Competitor{Name: "raw", Goroutines: n, Op: own(raw)},
			contest.Competitor{Name: "locker", Goroutines: n, Op: own(ours)},
			contest.Competitor{Name: "concurrency", Goroutines: n, Op: own(theirs)})
	}
}

// BenchmarkContended is one name that all goroutines of a process want. Raw is
// one caller alone, who makes one write more: what handing a lock on may cost.
func BenchmarkContended(b *testing.B) {
	s := synced(b)
	const most = 64
	raw, ours := rival(b, "raw+write", s.Addrs(), 1), rival(b, "locker", s.Addrs(), most)
	theirs := rival(b, "concurrency", s.Addrs(), most)
	one := func(c contender) func(operations, goroutines int) error {
		return contest.On(func(n int) error { return c(b.Context(), n, "one") })
	}
	for _, n := range []int{8, most} {
		contest.Run(b, fmt.Sprintf("goroutines=%d", n),
			contest.Competitor{Name: "raw", Goroutines: 1, Op: one(raw)},
			contest.Competitor{Name: "locker", Goroutines: n, Op: one(ours)},
			contest.Competitor{Name: "concurrency", Goroutines: n, Op: one(theirs)})
	}
}

// BenchmarkProcesses is one name that all goroutines of four programs want.
func BenchmarkProcesses(b *testing.B) {
	s := synced(b)
	const processes, most = 4, 64
	raw := rival(b, "raw+write", s.Addrs(), 1)
	programs := map[string][]*lab.Child{}
	for _, kind := range []string{"locker", "concurrency"} {
		programs[kind] = contest.Start(b, processes, "bench", strings.Join(s.Addrs(), ","), kind,
			strconv.Itoa(most/processes))
	}
	for _, n := range []int{8, most} {
		contest.Run(
			b,
			fmt.Sprintf("processes=%d,goroutines=%d", processes, n),
			contest.Competitor{
				Name:       "raw",
				Goroutines: 1,
				Op:         contest.On(func(int) error { return raw(b.Context(), 0, "one") }),
			},
			contest.Competitor{
				Name:       "locker",
				Goroutines: n,
				Op:         contest.Told(b, programs["locker"]),
			},
			contest.Competitor{Name: "concurrency", Goroutines: n, Op: contest.Told(b, programs["concurrency"])},
		)
	}
}

// benchRole is one of the programs. Its arguments: addresses, kind, goroutines
// at most. What it hears: how many operations, on how many goroutines.
func benchRole(p *lab.Parent) {
	ctx := context.Background()
	most, err := strconv.Atoi(p.Args[2])
	if err != nil {
		panic(err)
	}
	driver, err := newClient(strings.Split(p.Args[0], ","))
	if err != nil {
		panic(err)
	}
	c, _, err := contenders[p.Args[1]](ctx, driver, most)
	if err == nil {
		err = contest.Spread(20, 1, func(n int) error { return c(ctx, n, "warm") })
	}
	if err == nil {
		err = contest.Serve(p, func(n int) error { return c(ctx, n, "one") })
	}
	panic(err)
}
