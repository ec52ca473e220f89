// Package contest is the benchmark that compares this library with the raw requests of a service and with
// another lock on it: a lock that nobody else wants, one that all goroutines of a client want, and one that
// those of several clients want, who know nothing of each other, as in programs of their own. scripts/bench runs it in rounds, and has benchstat make a table of it, with a
// column for each contender: what stands behind the last slash of a benchmark's name.
package contest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
)

// Op takes a lock and gives it back, on the n-th goroutine of its client.
type Op func(ctx context.Context, n int, name string) error

// Contenders connect to servers, for so many goroutines. What they open ends with done.
type Contenders struct {
	Raw    Contender // makes the two requests that do the least of it
	Locker Contender
	Theirs Contender
	Name   string // of theirs
}

// Contender makes an Op.
type Contender func(servers []string, goroutines int) (op Op, done func(), err error)

const (
	most    = 256 // goroutines
	wanting = 64  // most of those that want one name
	apart   = 4   // clients
)

// OfBackend is the Contender of this library.
func OfBackend(b driver.Backend, err error) (Op, func(), error) {
	if err != nil {
		return nil, nil, err
	}
	c, err := locker.New(b, nil)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, _ int, name string) error {
		l, err := c.Lock(ctx, name)
		if err == nil {
			err = l.Unlock(ctx)
		}
		return err
	}, func() { _ = c.Close(); _ = b.Close() }, nil
}

// connect makes an Op that has done what is slow only once, such as making nodes and warming up a server.
func connect(c Contender, servers []string, goroutines int) (op Op, done func(), err error) {
	if op, done, err = c(servers, goroutines); err == nil {
		err = Spread(1000, goroutines, func(n int) error {
			return op(context.Background(), n, "warm-"+strconv.Itoa(n))
		})
	}
	return op, done, err
}

// Run runs the contenders on a service.
func (c Contenders) Run(b *testing.B, servers []string) {
	open := func(c Contender, goroutines int) Op {
		op, done, err := connect(c, servers, goroutines)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(done)
		return op
	}
	raw, ours, theirs := open(c.Raw, most), open(c.Locker, most), open(c.Theirs, most)
	run := func(topic, name string, do func(operations int) error) {
		b.Run(topic+"/"+name, func(b *testing.B) {
			if err := do(b.N); err != nil {
				b.Fatal(err)
			}
		})
	}
	on := func(goroutines int, op Op, name func(n int) string) func(int) error {
		return func(operations int) error {
			return Spread(operations, goroutines, func(n int) error { return op(b.Context(), n, name(n)) })
		}
	}
	own := func(n int) string { return "free-" + strconv.Itoa(n) }
	one := func(int) string { return "one" }
	for _, n := range []int{1, 8, 64, most} {
		topic := fmt.Sprintf("free,goroutines=%d", n)
		run(topic, "raw", on(n, raw, own))
		run(topic, "locker", on(n, ours, own))
		run(topic, c.Name, on(n, theirs, own))
	}
	for _, n := range []int{8, wanting} {
		topic := fmt.Sprintf("contended,goroutines=%d", n)
		run(topic, "locker", on(n, ours, one))
		run(topic, c.Name, on(n, theirs, one))
	}
	several := func(c Contender) Op {
		var ops [apart]Op
		for i := range ops {
			ops[i] = open(c, wanting/apart)
		}
		return func(ctx context.Context, n int, name string) error { return ops[n%apart](ctx, n/apart, name) }
	}
	ours, theirs = several(c.Locker), several(c.Theirs)
	for _, n := range []int{8, wanting} {
		topic := fmt.Sprintf("clients=%d,goroutines=%d", apart, n)
		for name, op := range map[string]Op{"locker": ours, c.Name: theirs} {
			b.Run(topic+"/"+name, func(b *testing.B) {
				timed, report := slowest(func(n int) error { return op(b.Context(), n, "one") })
				if err := Spread(b.N, n, timed); err != nil {
					b.Fatal(err)
				}
				report(b)
			})
		}
	}
}

// RunFree is the part of Run for one contender and so many goroutines, each with a name of its own.
func RunFree(b *testing.B, name string, c Contender, servers []string, goroutines int) {
	op, done, err := connect(c, servers, goroutines)
	if err != nil {
		b.Fatal(err)
	}
	defer done()
	b.Run(name, func(b *testing.B) {
		if err := Spread(b.N, goroutines, func(n int) error {
			return op(b.Context(), n, "free-"+strconv.Itoa(n))
		}); err != nil {
			b.Fatal(err)
		}
	})
}

// slowest times op, and reports what the slowest hundredth of its calls has taken, at least.
func slowest(op func(n int) error) (timed func(n int) error, report func(b *testing.B)) {
	var mu sync.Mutex
	var took []time.Duration
	return func(n int) error {
			began := time.Now()
			err := op(n)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(began))
			return err
		}, func(b *testing.B) {
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
		}
}

// Spread runs so many operations on so many goroutines, waits for all of them,
// and returns the first error. An error does not keep the others from being run.
// n is the goroutine's number, from 0: there is never more than one operation
// with the same at a time.
func Spread(operations, goroutines int, op func(n int) error) error {
	var begun atomic.Int64
	errs := make(chan error, goroutines)
	var all sync.WaitGroup
	for n := range goroutines {
		all.Go(func() {
			for begun.Add(1) <= int64(operations) {
				if err := op(n); err != nil {
					select {
					case errs <- err:
					default:
					}
				}
			}
		})
	}
	all.Wait()
	close(errs)
	return <-errs
}
