// Package contest is the benchmark that compares this library with the raw requests of a service and with
// another lock on it: a lock that nobody else wants, one that all goroutines of a program want, and one that
// all of several programs want. scripts/bench runs it in rounds, and has benchstat make a table of it, with a
// column for each contender: what stands behind the last slash of a benchmark's name.
package contest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
)

// Op takes a lock and gives it back, on the n-th goroutine of its program.
type Op func(ctx context.Context, n int, name string) error

// Contenders connect to servers, for so many goroutines. What they open ends with done.
type Contenders struct {
	Raw    Contender // makes the two requests that do the least of it
	HandOn Contender // and one more: what it may cost to hand a lock on
	Locker Contender
	Theirs Contender
	Name   string // of theirs
}

// Contender makes an Op.
type Contender func(servers []string, goroutines int) (op Op, done func(), err error)

const (
	most      = 256 // goroutines
	wanting   = 64  // most of those that want one name
	processes = 4
	answers   = 5 * time.Minute // how long a program may take for one block of operations
)

// OfBackend is the Contender of this library.
func OfBackend(b locker.Backend, err error) (Op, func(), error) {
	if err != nil {
		return nil, nil, err
	}
	c := locker.New(b, nil)
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
	open := func(c Contender) Op {
		op, done, err := connect(c, servers, most)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(done)
		return op
	}
	raw, handOn, ours, theirs := open(c.Raw), open(c.HandOn), open(c.Locker), open(c.Theirs)
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
		run(topic, "raw", on(1, handOn, one))
		run(topic, "locker", on(n, ours, one))
		run(topic, c.Name, on(n, theirs, one))
	}
	programs := map[string][]*lab.Child{}
	for _, kind := range []string{"locker", c.Name} {
		programs[kind] = Start(b, processes, "contest", append([]string{kind}, servers...)...)
	}
	for _, n := range []int{8, wanting} {
		topic := fmt.Sprintf("processes=%d,goroutines=%d", processes, n)
		run(topic, "raw", on(1, handOn, one))
		for _, kind := range []string{"locker", c.Name} {
			run(topic, kind, func(operations int) error { return told(b, programs[kind], operations, n) })
		}
	}
}

// Spread runs so many operations on so many goroutines, waits for all of them,
// and returns the first error. An error does not keep the others from being run.
// n is the goroutine's number, from 0: there is never more than one operation
// with the same at a time.
func Spread(operations, goroutines int, op func(n int) error) error {
	next := make(chan struct{}, goroutines)
	errs := make(chan error, 1)
	var all sync.WaitGroup
	for n := range goroutines {
		all.Go(func() {
			for range next {
				if err := op(n); err != nil {
					select {
					case errs <- err:
					default:
					}
				}
			}
		})
	}
	for range operations {
		next <- struct{}{}
	}
	close(next)
	all.Wait()
	close(errs)
	return <-errs
}

// Start starts so many programs: the test binary in a role that says when it is ready, as [Contenders.Role] does. They
// end with the test or benchmark.
func Start(b testing.TB, programs int, role string, args ...string) (all []*lab.Child) {
	b.Helper()
	for range programs {
		c := lab.StartChild(b, role, args...)
		c.Expect(b, "ready", answers)
		all = append(all, c)
	}
	return all
}

// told has programs do operations, on so many goroutines in all, as evenly as it goes: each program does as
// many, and if they cannot be shared out without a rest, some more are done.
func told(b testing.TB, programs []*lab.Child, operations, goroutines int) error {
	b.Helper()
	n := len(programs)
	for _, c := range programs {
		c.Send(b, fmt.Sprint((operations+n-1)/n, " ", goroutines/n))
	}
	for _, c := range programs {
		if said := c.Expect(b, "done", answers); said != "<nil>" {
			return fmt.Errorf("a program: %s", said)
		}
	}
	return nil
}

// Role is that of the programs. Their arguments: the contender, and servers. What they hear: how many operations on
// how many goroutines.
func (c Contenders) Role(p *lab.Parent) {
	contender := map[string]Contender{"locker": c.Locker, c.Name: c.Theirs}[p.Args[0]]
	op, _, err := connect(contender, slices.Clone(p.Args[1:]), wanting/processes)
	if err != nil {
		panic(err)
	}
	p.Say("ready")
	for {
		var operations, goroutines int
		if _, err := fmt.Sscan(p.Hear(), &operations, &goroutines); err != nil {
			panic(err)
		}
		err := Spread(operations, goroutines, func(n int) error { return op(context.Background(), n, "one") })
		p.Say("done %s", strings.ReplaceAll(fmt.Sprint(err), "\n", " "))
	}
}
