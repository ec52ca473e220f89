package backends_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
)

// BenchmarkSharers is 1,000 callers of one client and of four who all hold at the same
// time: one name that they share, beside as many names of their own; an operation is a
// lock and an unlock. Then the sharers come and go, each for 5 ms, and one asks for the
// name alone: writer-ms is for how long it waits.
func BenchmarkSharers(b *testing.B) {
	const sharers = 1000
	for _, service := range services() {
		b.Run(service.name, func(b *testing.B) {
			url := service.start(b)
			for _, n := range []int{1, 4} {
				clients := make([]*locker.Client, n+1)
				for i := range clients {
					var err error
					clients[i], err = backends.Open(b.Context(), url, nil)
					require.NoError(b, err)
					defer func() { require.NoError(b, clients[i].Close()) }()
				}
				if g := clients[0].Guarantees(); g.Shared == locker.SharingNone || g.Scope == locker.ScopeProcess {
					b.Skip("nothing is shared between clients")
				}
				each := func(do func(i int) error) {
					var all sync.WaitGroup
					for i := range sharers {
						all.Go(func() { assert.NoError(b, do(i)) })
					}
					all.Wait()
				}
				held := make([]*locker.Lease, sharers)
				lock := func(i int, name string, opts ...locker.Option) (err error) {
					held[i], err = clients[i%n].Lock(b.Context(), name, opts...)
					return err
				}
				share := func(i int) error { return lock(i, "shared", locker.Shared()) }
				leave := func(i int) error { return held[i].Unlock(b.Context()) }
				for what, come := range map[string]func(i int) error{
					"own-names": func(i int) error { return lock(i, "own-"+strconv.Itoa(i)) }, "locker": share,
				} {
					b.Run(fmt.Sprintf("clients=%d/%s", n, what), func(b *testing.B) {
						each(come)
						each(leave)
						for b.Loop() {
							each(come)
							each(leave)
						}
						b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*sharers), "ns/op")
						if what == "locker" {
							b.ReportMetric(writerWaits(b, clients[n], each, share, leave).Seconds()*1000, "writer-ms")
						}
					})
				}
			}
		})
	}
}

// writerWaits is how long a writer waits, in the middle of three, while sharers come and go.
func writerWaits(
	b *testing.B, writer *locker.Client, each func(func(int) error), share, leave func(int) error,
) time.Duration {
	var stop atomic.Bool
	begun, begin := context.WithCancel(b.Context())
	waited := make(chan []time.Duration, 1)
	go func() {
		defer stop.Store(true)
		var all []time.Duration
		<-begun.Done()
		for range 3 {
			time.Sleep(50 * time.Millisecond) // the sharers are in again
			began := time.Now()
			l, err := writer.Lock(b.Context(), "shared")
			all = append(all, time.Since(began))
			if err != nil || l.Unlock(b.Context()) != nil {
				b.Error("the writer's lock: ", err)
			}
		}
		waited <- all
	}()
	each(func(i int) (err error) {
		for err == nil && !stop.Load() {
			if err = share(i); err == nil {
				begin()
				time.Sleep(5 * time.Millisecond)
				err = leave(i)
			}
		}
		return err
	})
	all := <-waited
	slices.Sort(all)
	return all[1]
}
