// Command scheduler runs in several replicas, of which one leads. SIGTERM ends it in order.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/election"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	locks, err := backends.Open(ctx, os.Getenv("LOCKER_BACKEND"), nil)
	if err != nil {
		log.Fatal(err)
	}
	candidate := election.New(locks, "scheduler", &election.Options{Address: os.Getenv("POD_IP")})
	http.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "leads:", candidate.IsLeader()) // ready in either case
	})
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: time.Second}
	go func() { log.Print(server.ListenAndServe()) }()

	err = candidate.Run(ctx, schedule) // returns after SIGTERM, when schedule has returned

	deadline, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_ = server.Shutdown(deadline) // 1. requests finish; wait here for other work, too
	_ = locks.Close()             // 2. releases what is left; returns within five seconds
	if err != nil {
		log.Fatal(err)
	}
}

// schedule is the leader's work. It stops when ctx ends: another leads soon.
func schedule(ctx context.Context) error {
	fmt.Println("leads")
	<-ctx.Done()
	return nil
}
