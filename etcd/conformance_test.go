package etcd_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/lab"
)

func TestConformance(t *testing.T) { conform(t, 3, etcd.Options{}) }

func TestProveConformanceOfTheOldestStrict(t *testing.T) {
	lab.NeedProve(t)
	conform(t, 1, etcd.Options{StrictExpiry: true}, versions["oldest"]...)
}

func conform(t *testing.T, members int, opts etcd.Options, version ...lab.Option) {
	clock := newClock(t)
	h := harness(t, lab.StartEtcd(t, members, version...), opts)
	if h.JumpClock = clock; clock == nil {
		h.Unproven = map[string]string{
			"clock-jump": "the clock of a static Go program is the system's own: " +
				"testdata/clock/build makes an etcd with another, and says how the check is run on it",
		}
	}
	conformance.Run(t, h)
}

func harness(t *testing.T, s *lab.EtcdCluster, options etcd.Options) conformance.Harness {
	options.Members = len(s.Nodes)
	admin := dial(t, s.Addrs())
	on := func(ct conformance.T, c *clientv3.Client) driver.Backend {
		b, err := etcd.New(c, &options)
		ctFail(ct, err)
		return b
	}
	client := func(ct conformance.T, opts ...func(*clientv3.Config)) *clientv3.Client {
		c, err := newClient(s.Addrs(), opts...)
		ctFail(ct, err)
		ct.Cleanup(func() { _ = c.Close() })
		return c
	}
	connect := func(ct conformance.T, opts ...func(*clientv3.Config)) driver.Backend {
		return on(ct, client(ct, opts...))
	}
	known := []string{
		"github.com/golockers/locker/internal/lab.(*Process).start.func1", // a server that was restarted
		// Of the admin client, which may connect again in the middle of a check.
		"google.golang.org/grpc/internal/transport.(*http2Client).keepalive",
		"google.golang.org/grpc/internal/transport.(*controlBuffer).get",
		"google.golang.org/grpc/internal/transport.(*http2Client).reader",
		"google.golang.org/grpc/internal/grpcsync.(*CallbackSerializer).run",
	}
	h := conformance.Harness{
		Sessions: true,
		TTL:      time.Second,
		New:      func(ct conformance.T) driver.Backend { return connect(ct) },
		Pair: func(ct conformance.T) (driver.Backend, driver.Backend) {
			c := client(ct)
			return on(ct, c), on(ct, c)
		},
		Cut: func(ct conformance.T) (driver.Backend, conformance.Fault) {
			w := lab.StartProxy(ct)
			return connect(ct, through(w)), w
		},
		Delete: func(ct conformance.T, name string) {
			// The places of the holder, or of all sharers, and not those of who waits, and all floors.
			_, err := admin.Delete(ct.Context(), queue(name)+"!", clientv3.WithPrefix())
			ctFail(ct, err)
			resp, err := admin.Get(ct.Context(), queue(name), clientv3.WithRange(queue(name)+"~"),
				clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
			ctFail(ct, err)
			shares := func(i int) bool { return strings.HasPrefix(string(resp.Kvs[i].Key), queue(name)+"s") }
			for i, kv := range resp.Kvs {
				if i > 0 && (!shares(0) || !shares(i)) {
					break
				}
				_, err = admin.Delete(ct.Context(), string(kv.Key))
				ctFail(ct, err)
			}
		},
		Untold: map[string]string{"List time": "each lease would have to be asked for its own, one request for each name"},
		Left: func(ct conformance.T, name string) []string {
			resp, err := admin.Get(ct.Context(), queue(name), clientv3.WithRange(queue(name)+"~"))
			ctFail(ct, err)
			var left []string
			for _, kv := range resp.Kvs {
				left = append(left, fmt.Sprintf("%s = %s", kv.Key, kv.Value))
			}
			return left
		},
		Restart: func(conformance.T) { s.Restart(t) },
		Names: []string{
			"/",
			"a/b",
			"a%2Fb",
			"%",
			"%2F",
			"..",
			"../../void/x",
			"\x00",
			"a\xc3\xa9",
			"locker/1/lock/a",
		},
		URL:             "etcd://" + strings.Join(s.Addrs(), ",") + "/locker",
		Open:            conformance.OpenWith(etcd.Openers),
		KnownGoroutines: known,
	}
	if len(s.Nodes) > 1 {
		var down []*lab.Etcd
		restore := func() {
			for _, n := range down {
				n.Restart(t)
			}
			down = nil
		}
		h.Crash = func(_ conformance.T, n int) func() {
			for range n {
				leader := s.Leader(t)
				leader.Kill()
				down = append(down, leader)
			}
			s.Leader(t)
			return restore
		}
		h.Hang = func(_ conformance.T, n int) func() {
			var still []*lab.Etcd
			for range n {
				leader := s.Leader(t, still...)
				leader.Pause()
				still = append(still, leader)
			}
			s.Leader(t, still...)
			return func() {
				for _, n := range still {
					n.Resume()
				}
			}
		}
		h.Failover = func(ct conformance.T) {
			ct.Cleanup(restore)
			h.Crash(ct, 1)
		}
	}
	return h
}

// clockEnv names the file in which an etcd of testdata/clock/build looks for the
// seconds that its wall clock is wrong by: eight bytes, the machine's order.
const clockEnv = "LOCKER_ETCD_CLOCK"

// newClock makes the file. It is there before etcd is started.
func newClock(t *testing.T) func(conformance.T, time.Duration) {
	name := os.Getenv(clockEnv)
	if name == "" {
		return nil
	}
	file, err := os.Create(name)
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	var wrong time.Duration
	step := func(d time.Duration) error {
		wrong += d
		_, err := file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(wrong/time.Second)), 0)
		return err
	}
	require.NoError(t, step(0))
	return func(ct conformance.T, d time.Duration) {
		ctFail(ct, step(d))
		time.Sleep(2 * time.Second) // etcd looks twice a second which leases are over
	}
}
