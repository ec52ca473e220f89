package contest

import (
	"fmt"
	"testing"
	"time"

	"github.com/golockers/locker/internal/lab"
)

// How long programs may take: to begin, and for one block of operations.
const (
	beginTime = time.Minute
	blockTime = 5 * time.Minute
)

// Start starts so many programs: the test binary in a role that ends in [Serve].
// It returns when all of them are ready. They end with the test or benchmark.
func Start(b testing.TB, programs int, role string, args ...string) []*lab.Child {
	b.Helper()
	var all []*lab.Child
	for range programs {
		c := lab.StartChild(b, role, args...)
		c.Expect(b, "ready", beginTime)
		all = append(all, c)
	}
	return all
}

// Told makes a [Competitor.Op] that has programs do the operations, on so many
// goroutines in all, as evenly as it goes: each program does as many, and if
// they cannot be shared out without a rest, some more are done. The programs
// are in [Serve]. The benchmark ends if one does not answer.
func Told(b testing.TB, programs []*lab.Child) func(operations, goroutines int) error {
	return func(operations, goroutines int) error {
		n := len(programs)
		for _, c := range programs {
			c.Send(b, fmt.Sprint((operations+n-1)/n, " ", goroutines/n))
		}
		for _, c := range programs {
			c.Expect(b, "done", blockTime)
		}
		return nil
	}
}

// Serve is what a program does that is [Told]: it says that it is ready, and
// runs op, by way of [Spread], as often as it hears. It returns only when an
// operation has failed; a program ends with that error, which is then in its log.
func Serve(p *lab.Parent, op func(n int) error) error {
	for said := "ready"; ; said = "done" {
		p.Say("%s", said)
		var operations, goroutines int
		if _, err := fmt.Sscan(p.Hear(), &operations, &goroutines); err != nil {
			return err
		}
		if err := Spread(operations, goroutines, op); err != nil {
			return err
		}
	}
}
