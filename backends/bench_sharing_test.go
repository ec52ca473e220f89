package backends_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/internal/lab"
)

func TestMain(m *testing.M) {
	lab.RunRole(lab.Roles{"share": share})
	m.Run()
}

// BenchmarkSharers is 1,000 callers of one process and of four who all hold at the same
// time: one name that they share, beside as many names of their own; an operation is a
// lock and an unlock. Then the sharers come and go, each for 5 ms, and one asks for the
// name alone: writer-ms is for how long it waits.
func BenchmarkSharers(b *testing.B) {
	const sharers = 1000
	for _, service := range services() {
		if service.name == "memory" {
			continue // nothing goes between processes
		}
		b.Run(service.name, func(b *testing.B) {
			url := service.start(b)
			client, err := backends.Openers.Open(b.Context(), url, nil)
			require.NoError(b, err)
			defer func() { require.NoError(b, client.Close()) }()
			if client.Guarantees().Shared == locker.SharingNone {
				b.Skip("it has no shared locks")
			}
			for _, processes := range []int{1, 4} {
				for _, what := range []string{"own-names", "locker"} {
					b.Run(fmt.Sprintf("processes=%d/%s", processes, what), func(b *testing.B) {
						var all []*lab.Child
						tell := func(word, answer string) {
							for _, c := range all {
								c.Send(b, word)
							}
							for _, c := range all {
								c.Expect(b, answer, time.Minute)
							}
						}
						for range processes {
							all = append(all, lab.StartChild(b, "share", url, strconv.Itoa(sharers/processes), what))
						}
						tell("hold", "held")
						tell("leave", "left")
						b.ResetTimer()
						for b.Loop() {
							tell("hold", "held")
							tell("leave", "left")
						}
						b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*sharers), "ns/op")
						if what != "locker" {
							return
						}
						tell("come and go", "coming")
						var waited []time.Duration
						for range 3 {
							began := time.Now()
							l, err := client.Lock(b.Context(), "shared")
							require.NoError(b, err)
							waited = append(waited, time.Since(began))
							require.NoError(b, l.Unlock(b.Context()))
						}
						tell("leave", "left")
						slices.Sort(waited)
						b.ReportMetric(waited[1].Seconds()*1000, "writer-ms")
					})
				}
			}
		})
	}
}

// share is a process with some of the sharers. Its arguments: a URL, how many they are,
// and "locker" if they share one name.
func share(p *lab.Parent) {
	n, err := strconv.Atoi(p.Args[1])
	must(err)
	ctx := context.Background()
	client, err := backends.Openers.Open(ctx, p.Args[0], nil)
	must(err)
	each := func(f func(i int)) {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { f(i) })
		}
		all.Wait()
	}
	lock := func(i int) *locker.Lease {
		name, opts := fmt.Sprintf("own-%s-%d", client.Guarantees().Backend, i), []locker.Option(nil)
		if p.Args[2] == "locker" {
			name, opts = "shared", []locker.Option{locker.Shared()}
		} else {
			name += "-" + strconv.Itoa(int(time.Now().UnixNano()))
		}
		l, err := client.Lock(ctx, name, opts...)
		must(err)
		return l
	}
	held := make([]*locker.Lease, n)
	for {
		switch p.Hear() {
		case "hold":
			each(func(i int) { held[i] = lock(i) })
			p.Say("held")
		case "leave":
			each(func(i int) { must(held[i].Unlock(ctx)) })
			p.Say("left")
		case "come and go":
			p.Say("coming")
			stop := make(chan struct{})
			go func() {
				if p.Hear() == "leave" {
					close(stop)
				}
			}()
			each(func(i int) {
				for {
					l := lock(i)
					time.Sleep(5 * time.Millisecond)
					must(l.Unlock(ctx))
					select {
					case <-stop:
						return
					default:
					}
				}
			})
			p.Say("left")
		default:
			return
		}
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
