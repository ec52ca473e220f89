package bridge_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/bridge"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/memory"
)

func TestMain(m *testing.M) {
	lab.RunRole(lab.Roles{"hold": holdRole, "member": memberRole})
	goleak.VerifyTestMain(m)
}

// allEnv asks for what takes too long for every run: all pairs, a hundred moves.
const allEnv = "LOCKER_BRIDGE_ALL"

// One pair, with faults on both sides, and those that only a long run proves.
func TestProveConformance(t *testing.T) {
	lab.NeedProve(t)
	for _, pair := range []struct {
		first, second string
		cut           string // where the network fails: if the first one serves, it may well say "held"
		long          bool
	}{
		{"redis", "etcd", "both", false},
		{"file", "redis", "none", true},
		{"redis", "redlock", "first", true},
		{"redis", "etcd", "first", true},
		{"redlock", "zookeeper", "both", true},
		{"etcd", "postgres", "both", true},
		{"etcd", "postgres", "first", true},
		{"postgres", "redis", "both", true},
		{"zookeeper", "etcd", "both", true},
	} {
		t.Run(pair.first+" "+pair.second+", faults of "+pair.cut, func(t *testing.T) {
			if pair.long && os.Getenv(allEnv) == "" {
				t.Skip("it takes a minute: set " + allEnv + "=1")
			}
			conformance.Run(t, harness(t, services[pair.first](t), services[pair.second](t), pair.cut))
		})
	}
}

// mortal are the checks in which a hold dies that nobody ends: on both services, since a
// session that is not cut off lives on.
var mortal = []string{"shared-lives", "shared-tokens", "shared-late"}

// faults are those of several connections.
type faults []conformance.Fault

func (all faults) Requests(m conformance.Mode) {
	for _, f := range all {
		f.Requests(m)
	}
}

func (all faults) Replies(m conformance.Mode) {
	for _, f := range all {
		f.Replies(m)
	}
}

func (all faults) Sent() (n int64) {
	for _, f := range all {
		n += f.Sent()
	}
	return n
}

func harness(t *testing.T, first, second *service, broken string) conformance.Harness {
	join := func(ct conformance.T, first, second locker.Backend) locker.Backend {
		b, err := bridge.New(first, second)
		if err != nil {
			ct.Errorf("bridge.New: %v", err)
			ct.FailNow()
		}
		return b
	}
	connect := func(ct conformance.T, firstURL, secondURL string) locker.Backend {
		return join(ct, open(ct, firstURL, first.session(ct.Name())),
			open(ct, secondURL, second.session(ct.Name())))
	}
	through := func(ct conformance.T, s *service, side string) (string, faults) {
		dies := broken != "none" && slices.Contains(mortal, ct.Name())
		if s.addrs == nil || broken != "both" && broken != side && !dies {
			return s.ownURL(), nil
		}
		var all faults
		var addrs []string
		for _, a := range s.addrs {
			addr, fault := conformance.Proxy(ct, a)
			all, addrs = append(all, fault), append(addrs, addr)
		}
		return s.url(addrs), all
	}
	secondURL := second.ownURL() // with a parameter: the suite adds one more
	if !strings.Contains(secondURL, "?") {
		secondURL += "?patience=10s"
	}
	if session := max(first.session("url"), second.session("url")); session != 0 {
		secondURL += "&ttl=" + session.String()
	}
	h := conformance.Harness{
		TTL: time.Second,
		New: func(ct conformance.T) locker.Backend { return connect(ct, first.ownURL(), second.ownURL()) },
		Delete: func(ct conformance.T, name string) {
			first.delete(ct, name)
			second.delete(ct, name)
		},
		Left: func(ct conformance.T, name string) []string {
			return slices.Concat(first.left(ct, name), second.left(ct, name))
		},
		Restart: func(conformance.T) {
			first.restart()
			second.restart()
		},
		URL:  first.ownURL() + " " + secondURL,
		Open: backends.Openers,
		Unproven: map[string]string{
			"clock-jump": "the tests of each service step its clock; that of a pair has no clock of its own",
		},
		KnownGoroutines: []string{
			"github.com/golockers/locker/internal/lab.(*Process).start.func1", // a server that was restarted
			"os.(*Process).pidfdWait",
			// Of etcd's admin client, which may connect again in the middle of a check.
			"google.golang.org/grpc/internal/transport.(*http2Client).keepalive",
			"google.golang.org/grpc/internal/transport.(*controlBuffer).get",
			"google.golang.org/grpc/internal/transport.(*http2Client).reader",
			"google.golang.org/grpc/internal/grpcsync.(*CallbackSerializer).run",
		},
	}
	if first.addrs == nil {
		h.Victim = func(_ conformance.T, name string, ttl time.Duration) func() {
			child := lab.StartChild(t, "hold", first.ownURL()+" "+second.ownURL(), name, ttl.String())
			child.Expect(t, "holding", soon)
			return child.Kill
		}
		return h
	}
	h.Cut = func(ct conformance.T) (locker.Backend, conformance.Fault) {
		a, faults := through(ct, first, "first")
		b, more := through(ct, second, "second")
		return connect(ct, a, b), append(faults, more...)
	}
	return h
}

// Two in one process: nothing fails here but what is the pair's own.
func TestConformanceOfMemory(t *testing.T) {
	old, young := memory.New(), memory.NewExpiring()
	conformance.Run(t, conformance.Harness{
		TTL: 500 * time.Millisecond, // nothing is far away
		New: func(ct conformance.T) locker.Backend {
			b, err := bridge.New(fake{Backend: old}, fake{Backend: young})
			require.NoError(t, err)
			return b
		},
		Delete: func(_ conformance.T, name string) {
			old.Delete(name)
			young.Delete(name)
		},
	})
}

const soon = 20 * time.Second

// holdRole takes a lock and keeps it: URLs, name, TTL.
func holdRole(p *lab.Parent) {
	ttl, err := time.ParseDuration(p.Args[2])
	if err != nil {
		panic(err)
	}
	c, err := backends.Openers.Open(context.Background(), p.Args[0], &locker.Options{TTL: ttl})
	if err != nil {
		panic(err)
	}
	if _, err := c.Lock(context.Background(), p.Args[1]); err != nil {
		panic(err)
	}
	p.Say("holding")
	select {}
}
