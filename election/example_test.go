package election_test

import (
	"context"
	"fmt"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/election"
	"github.com/golockers/locker/memory"
)

// Two machines stand for election. The first steps down for its upgrade, and the other
// leads.
func Example() {
	ctx, shutDown := context.WithCancel(context.Background())
	client := locker.New(memory.New(), nil) // backends.Open(…) on real machines
	defer func() { _ = client.Close() }()

	stand := func(address string, led chan<- *election.Candidate) <-chan error {
		c := election.New(client, "scheduler", &election.Options{Address: address})
		ended := make(chan error)
		go func() {
			ended <- c.Run(ctx, func(ctx context.Context, term uint64) error {
				fmt.Println(address, "leads in term", term)
				led <- c
				<-ctx.Done() // the work: it has to stop when the context ends
				return nil
			})
		}()
		return ended
	}
	led := make(chan *election.Candidate)
	first := stand("10.0.0.1:8080", led)
	leader := <-led
	second := stand("10.0.0.2:8080", led)

	leader.StepDown(time.Hour)
	leader = <-led
	who, err := client.Inspect(ctx, "scheduler")
	fmt.Println("ask", who.Label, err, leader.IsLeader())

	shutDown()
	fmt.Println(<-first, <-second)
	// Output:
	// 10.0.0.1:8080 leads in term 1
	// 10.0.0.2:8080 leads in term 2
	// ask 10.0.0.2:8080 <nil> true
	// context canceled context canceled
}
