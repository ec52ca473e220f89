package main_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/golockers/locker/internal/lab"
	"github.com/stretchr/testify/assert"
)

// turn is a locker run of the campaign.
type turn struct {
	what        string // that was done to it
	shared      bool
	excused     bool // neither locker nor its guard was able to run, so nobody could end the command
	first, last int64
}

// TestProveOneCommandAtATime stops and kills lockers, their guards or both, at random and in the moments in which a
// command is about to begin, and looks at the times that the commands wrote: those of two never mix, unless they
// share the lock.
func TestProveOneCommandAtATime(t *testing.T) {
	lab.NeedProve(t)
	all := map[string]func(*testing.T) []string{}
	for name, start := range services {
		all[name] = func(t *testing.T) []string { return []string{start(t)} }
	}
	all["pair"] = func(t *testing.T) []string {
		one, other := services["redis"](t), services["etcd"](t)
		return []string{one, one + " " + other} // a fleet that moves
	}
	for name, start := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			urls := start(t)
			var mu sync.Mutex
			var turns []turn
			var everybody sync.WaitGroup
			for n := range 3 {
				everybody.Go(func() {
					for end := time.Now().Add(time.Minute); time.Now().Before(end) && !t.Failed(); {
						one := attacked(t, urls[n%len(urls)], name != "redlock" && name != "pair" && rand.N(3) == 0)
						mu.Lock()
						turns = append(turns, one)
						mu.Unlock()
					}
				})
			}
			everybody.Wait()
			ran, judged := 0, 0
			for i, a := range turns {
				if a.first == 0 {
					continue
				}
				if ran++; a.excused {
					continue
				}
				judged++
				for j, b := range turns {
					if i != j && b.first != 0 && a.first <= b.first && b.first <= a.last && !(a.shared && b.shared) {
						assert.Fail(t, "two at once", "%+v\n%+v", a, b)
					}
				}
			}
			t.Logf("%d runs, %d commands ran, %d judged", len(turns), ran, judged)
			assert.Greater(t, judged, 4, "too few to prove anything")
		})
	}
}

// attacked runs a command under the lock and does something to its locker, its guard or both.
func attacked(t *testing.T, url string, shared bool) turn {
	file := filepath.Join(t.TempDir(), "beats")
	flags := []string{"--ttl", "3s", "-b", url}
	if shared {
		flags = append(flags, "--shared")
	}
	length := (200*time.Millisecond + rand.N(4*time.Second)).String()
	p := start(t, nil, locked(flags, "a", "beat", file, length)...)
	names := []string{"the guard starts", "the command is at its gate", "the command begins"}
	window := names[rand.N(len(names))]
	for !windows[window](p.cmd.Process.Pid, file) && p.running() {
		time.Sleep(time.Millisecond)
	}
	if rand.N(3) > 0 {
		time.Sleep(rand.N(30 * time.Millisecond)) // steps between those that can be seen
	} else if rand.N(3) == 0 {
		time.Sleep(rand.N(2 * time.Second))
	}
	one := turn{what: window, shared: shared}
	locker, guard := p.cmd.Process.Pid, childOf(p.cmd.Process.Pid)
	for _, victim := range [][]int{{locker}, {guard}, {locker, guard}, nil}[rand.N(4)] {
		sig := []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL}[rand.N(2)]
		if victim == 0 || !p.running() {
			break
		}
		one.what += fmt.Sprintf(", %v to %s", sig, map[int]string{locker: "locker", guard: "guard"}[victim])
		one.excused = strings.Contains(one.what, "locker") && strings.Contains(one.what, "guard")
		_ = syscall.Kill(victim, sig)
	}
	stopped := time.After(rand.N(5 * time.Second))
	select {
	case <-p.ended:
	case <-stopped:
	}
	if guard != 0 {
		_ = syscall.Kill(guard, syscall.SIGCONT)
	}
	p.signal(syscall.SIGCONT)
	p.wait()
	if guard != 0 { // which outlives a locker that was killed
		for n := 0; !gone(guard) && n < 1000; n++ {
			time.Sleep(10 * time.Millisecond)
		}
	}
	one.first, one.last = beats(t, file)
	return one
}
