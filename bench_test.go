package locker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/memory"
)

// What the engine itself costs: the service is a map in memory. Each goroutine
// locks and unlocks a name of its own.
func BenchmarkPair(b *testing.B) {
	for _, callers := range []int{1, 256} {
		for _, kind := range []string{"background", "cancelable"} {
			b.Run(fmt.Sprintf("callers=%d/ctx=%s", callers, kind), func(b *testing.B) {
				c := locktest.Must(locker.New(memory.New(), nil))
				defer c.Close()
				b.ReportAllocs()
				var work sync.WaitGroup
				for i := range callers {
					n := b.N / callers
					if i < b.N%callers {
						n++
					}
					work.Go(func() {
						name := fmt.Sprint("job/", i)
						for range n {
							ctx, cancel := context.Background(), func() {}
							if kind == "cancelable" {
								ctx, cancel = context.WithCancel(ctx)
							}
							l, err := c.Lock(ctx, name)
							if err == nil {
								err = l.Unlock(ctx)
							}
							cancel()
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				work.Wait()
			})
		}
	}
}

// What Do adds to a pair: the context of the function.
func BenchmarkDo(b *testing.B) {
	c := locktest.Must(locker.New(memory.New(), nil))
	defer c.Close()
	b.ReportAllocs()
	for b.Loop() {
		if err := locker.Do(context.Background(), c, "job", func(context.Context) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
