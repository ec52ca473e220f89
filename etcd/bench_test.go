package etcd_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/testserver"
)

// spread runs b.N operations on that many goroutines.
func spread(b *testing.B, goroutines int, op func(worker int) error) {
	b.Helper()
	next := make(chan struct{}, goroutines)
	var all sync.WaitGroup
	b.ResetTimer()
	for w := range goroutines {
		all.Go(func() {
			for range next {
				if err := op(w); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for range b.N {
		next <- struct{}{}
	}
	close(next)
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "locks/s")
}

// The names and units are those that internal/benchtable reads.

// turns is how often the contenders take turns in one run: the machine is not
// the same from one second to the next.
const turns = 3

// BenchmarkFree is the lock that nobody else wants: acquire and release, beside
// the two raw requests that do the least of it, on one client for all.
func BenchmarkFree(b *testing.B) {
	s := testserver.StartEtcd(b, 1)
	ctx := context.Background()
	driver := dial(b, s.Addrs())
	lease, err := driver.Grant(ctx, 600)
	require.NoError(b, err)
	backend, err := etcd.New(driver, nil)
	require.NoError(b, err)
	b.Cleanup(func() { _ = backend.Close() })
	locks := locker.New(backend, nil)
	session, err := concurrency.NewSession(driver, concurrency.WithTTL(600))
	require.NoError(b, err)
	for _, goroutines := range []int{1, 8, 64} {
		for range turns {
			b.Run(fmt.Sprintf("goroutines=%d/raw", goroutines), func(b *testing.B) {
				spread(b, goroutines, func(w int) error {
					key := fmt.Sprintf("raw/1/lock/free-%d/%040d", w, 1)
					_, err := driver.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).Then(clientv3.OpPut(key, "bench", clientv3.WithLease(lease.ID))).Commit()
					if err == nil {
						_, err = driver.Delete(ctx, key)
					}
					return err
				})
			})
			b.Run(fmt.Sprintf("goroutines=%d/locker", goroutines), func(b *testing.B) {
				lockUnlock(b, goroutines, func(w int) (*locker.Client, string) { return locks, fmt.Sprintf("free-%d", w) })
				b.ReportMetric(1.10, "target-time")
			})
			b.Run(fmt.Sprintf("goroutines=%d/concurrency", goroutines), func(b *testing.B) {
				spread(b, goroutines, func(w int) error {
					return mutex(ctx, session, fmt.Sprintf("upstream-%d", w))
				})
			})
		}
	}
}

// BenchmarkContended is one name that all want. Goroutines of one process share
// a client; concurrency.Mutex needs a session each, or two of them hold it at once.
func BenchmarkContended(b *testing.B) {
	s := testserver.StartEtcd(b, 1)
	ctx := context.Background()
	for _, n := range []struct{ processes, goroutines int }{{1, 8}, {1, 64}, {4, 64}} {
		of := fmt.Sprintf("clients=%d,goroutines=%d", n.processes, n.goroutines)
		var drivers []*clientv3.Client
		var clients []*locker.Client
		for range n.processes {
			driver := dial(b, s.Addrs())
			backend, err := etcd.New(driver, nil)
			require.NoError(b, err)
			b.Cleanup(func() { _ = backend.Close() })
			drivers, clients = append(drivers, driver), append(clients, locker.New(backend, nil))
		}
		sessions := make([]*concurrency.Session, n.goroutines)
		for w := range sessions {
			session, err := concurrency.NewSession(drivers[w%n.processes], concurrency.WithTTL(600))
			require.NoError(b, err)
			sessions[w] = session
		}
		for range turns {
			b.Run(of+"/locker", func(b *testing.B) {
				lockUnlock(b, n.goroutines, func(w int) (*locker.Client, string) { return clients[w%n.processes], "one" })
			})
			b.Run(of+"/concurrency", func(b *testing.B) {
				spread(b, n.goroutines, func(w int) error { return mutex(ctx, sessions[w], "upstream") })
			})
		}
	}
}

func lockUnlock(b *testing.B, goroutines int, of func(w int) (*locker.Client, string)) {
	ctx := context.Background()
	for w := range goroutines { // the sessions are opened
		c, _ := of(w)
		l, err := c.Lock(ctx, fmt.Sprintf("warm-%d", w))
		require.NoError(b, err)
		require.NoError(b, l.Unlock(ctx))
	}
	spread(b, goroutines, func(w int) error {
		c, name := of(w)
		l, err := c.Lock(ctx, name)
		if err == nil {
			err = l.Unlock(ctx)
		}
		return err
	})
}

func mutex(ctx context.Context, session *concurrency.Session, name string) error {
	m := concurrency.NewMutex(session, name)
	err := m.Lock(ctx)
	if err == nil {
		err = m.Unlock(ctx)
	}
	return err
}
