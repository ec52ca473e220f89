package redlock_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisnode"
	"github.com/golockers/locker/redlock"
)

// granted are the checks on how a lock is granted and let go, and on what a request
// leaves whose outcome is not known: fencing makes one more round trip of it, and
// changes nothing else.
var granted = []string{
	"claims", "url", "wake-up", "nothing-piles-up", "exclusion", "deletion",
	"names", "dead-holder", "prompt", "server-crashes", "histories",
}

func TestConformance(t *testing.T) {
	conformance.Run(t, durable(t, 5).harness(t, true))
}

func TestProveConformanceWithoutFencing(t *testing.T) {
	lab.NeedProve(t)
	conformance.RunOnly(t, durable(t, 5).harness(t, false), granted...)
}

func (s *nodes) harness(t *testing.T, fencing bool) conformance.Harness {
	on := func(ct conformance.T, timeout time.Duration, clients []*redis.Client) driver.Backend {
		b, err := redlock.New(clients, &redlock.Options{Fencing: fencing, NodeTimeout: timeout})
		if err != nil {
			ct.Errorf("redlock.New: %v", err)
			ct.FailNow()
		}
		return b
	}
	connect := func(ct conformance.T, timeout time.Duration, addr func(i int) string) driver.Backend {
		return on(ct, timeout, s.clients(ct, addr))
	}
	direct := func(i int) string { return s.servers[i].Addr() }
	some := func(down, up func(*lab.Redis)) func(conformance.T, int) func() {
		return func(_ conformance.T, n int) func() {
			each(s.servers[:n], down)
			return func() { each(s.servers[:n], up) }
		}
	}
	fenced := "off"
	if fencing {
		fenced = "on"
	}
	return conformance.Harness{
		TTL: 600 * time.Millisecond,
		New: func(ct conformance.T) driver.Backend { return connect(ct, hasty, direct) },
		Pair: func(ct conformance.T) (driver.Backend, driver.Backend) {
			clients := s.clients(ct, direct)
			return on(ct, hasty, clients), on(ct, hasty, clients)
		},
		Cut: func(ct conformance.T) (driver.Backend, conformance.Fault) {
			w := lab.StartProxy(ct)
			return connect(ct, time.Second, func(i int) string { return w.Through(direct(i))[0] }), w
		},
		CutSome: func(ct conformance.T, some []int) (driver.Backend, conformance.Fault) {
			w := lab.StartProxy(ct)
			return connect(ct, hasty, func(i int) string {
				if slices.Contains(some, i) {
					return w.Through(direct(i))[0]
				}
				return direct(i)
			}), w
		},
		Delete: func(_ conformance.T, name string) {
			s.servers.MustDo(t, "DEL", redisnode.LockKey(name))
		},
		Left: func(_ conformance.T, name string) []string {
			var left []string
			for i := range s.servers {
				if v := s.value(t, i, name); v != "" {
					left = append(left, fmt.Sprintf("node %d: %s", i+1, v))
				}
			}
			return left
		},
		Crash: some((*lab.Redis).Kill, func(r *lab.Redis) { r.Restart(t) }),
		Hang:  some((*lab.Redis).Pause, (*lab.Redis).Resume),
		Names: []string{"a}", "{a", "a:quorum", "a}:quorum", "a:wait", "%", "%7B", "{", "}", "{}", "locker:2:{a}"},
		KnownGoroutines: []string{
			"github.com/golockers/locker/internal/lab.(*Process).start.func1", // Crash starts servers anew
			// a connection that is being made, which the driver's Close does not end
			"github.com/redis/go-redis/v9/internal/pool.(*ConnPool).queuedNewConn.func2",
		},
		URL:  s.url() + "?node_timeout=300ms&fencing=" + fenced,
		Open: conformance.OpenWith(redlock.Openers),
	}
}

func (s *nodes) url() string {
	var hosts []string
	for _, r := range s.servers {
		hosts = append(hosts, r.Addr())
	}
	return "redlock://" + strings.Join(hosts, ",")
}
