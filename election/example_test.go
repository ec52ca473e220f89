package election_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/election"
	"github.com/golockers/locker/memory"
)

// Two machines stand for election. The first steps down for an upgrade, and the other leads.
func Example() {
	ctx, shutDown := context.WithCancel(context.Background())
	client, err := locker.New(memory.New(), nil) // backends.Open(…) on real machines
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	stand := func(address string, led chan<- *election.Candidate) <-chan error {
		c := election.New(client, "scheduler", &election.Options{Address: address})
		ended := make(chan error)
		go func() {
			ended <- c.Run(ctx, func(ctx context.Context) error {
				term, _ := election.FromContext(ctx, "scheduler")
				fmt.Println(address, "leads in term", term)
				led <- c
				<-ctx.Done() // the work: it must stop when the context ends
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
	// <nil> <nil>
}

// watch calls changed when the leader changes, or nobody leads ("", 0), until ctx ends. It polls the
// service: it sees a change one interval late, and misses one that was undone meanwhile. During an
// outage it reports nothing.
func watch(ctx context.Context, client *locker.Client, name string, every time.Duration,
	changed func(address string, term uint64)) error {
	last, known := locker.State{}, false
	for {
		who, err := client.Inspect(ctx, name)
		if err != nil && !errors.Is(err, locker.ErrUnavailable) {
			return err
		}
		if err == nil && (!known || who.Token != last.Token || who.Label != last.Label) {
			changed(who.Label, who.Token)
			last, known = who, true
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A client that sends requests to the leader asks the service every second.
func Example_watch() {
	ctx, shutDown := context.WithCancel(context.Background())
	client, err := locker.New(memory.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	seen := make(chan string)
	go func() {
		_ = watch(ctx, client, "scheduler", time.Millisecond, func(address string, term uint64) { // time.Second
			seen <- fmt.Sprintf("%q leads in term %d", address, term)
		})
	}()
	fmt.Println(<-seen)
	c := election.New(client, "scheduler", &election.Options{Address: "10.0.0.1:8080"})
	err = c.Run(ctx, func(context.Context) error {
		fmt.Println(<-seen)
		return nil
	})
	fmt.Println(<-seen)
	shutDown()
	fmt.Println(err)
	// Output:
	// "" leads in term 0
	// "10.0.0.1:8080" leads in term 1
	// "" leads in term 0
	// <nil>
}
