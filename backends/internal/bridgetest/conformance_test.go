package bridgetest_test

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/bridge"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

func TestMain(m *testing.M) {
	lab.RunRole(lab.Roles{"member": memberRole})
	goleak.VerifyTestMain(m)
}

// A service with messages and one with sessions, with faults on both. (In the campaign of package backends, one or the
// other fails.)
func TestProveConformance(t *testing.T) {
	lab.NeedProve(t)
	first, second := redisService(t), etcdService(t)
	each := [2]driver.Backend{open(t, first.ownURL()), open(t, second.ownURL())}
	t.Cleanup(func() { assert.NoError(t, errors.Join(each[0].Close(), each[1].Close())) })
	look := func(ct conformance.T, name string, do func(driver.Operator, locker.State) error) {
		for _, b := range each {
			o := b.(driver.Operator)
			st, err := o.Inspect(ct.Context(), name)
			if err = cmp.Or(err, do(o, st)); err != nil {
				ct.Errorf("%s: %v", b.Guarantees().Backend, err)
			}
		}
	}
	conformance.Run(t, conformance.Harness{
		TTL: time.Second, Sessions: true,
		New: func(ct conformance.T) driver.Backend {
			return locktest.Must(bridge.New(open(ct, first.ownURL()), open(ct, second.ownURL())))
		},
		Delete: func(ct conformance.T, name string) {
			look(ct, name, func(o driver.Operator, st locker.State) error { return o.Break(ct.Context(), st) })
		},
		Left: func(ct conformance.T, name string) (left []string) {
			look(ct, name, func(_ driver.Operator, st locker.State) error {
				if st.Held || st.Waiters > 0 {
					left = append(left, fmt.Sprintf("%+v", st))
				}
				return nil
			})
			return left
		},
		Cut: func(ct conformance.T) (driver.Backend, conformance.Fault) {
			way := lab.StartProxy(ct)
			through := func(s *service) driver.Backend { return open(ct, s.url(way.Through(s.addrs...))) }
			return locktest.Must(bridge.New(through(first), through(second))), way
		},
		// One service ends its half of a hold before the other, which keeps it until the engine undoes it: an answer
		// that no rule of one service explains.
		Unproven: map[string]string{"histories": "the two halves of a hold do not end at one moment"},
		URL:      first.ownURL() + " " + second.ownURL() + "?outage_timeout=10s", // the suite adds one more
		Open:     backends.Open,
		KnownGoroutines: []string{
			"os.(*Process).pidfdWait",
			// Of an etcd client that looks, and may connect again in the middle of a check.
			"google.golang.org/grpc/internal/transport.(*http2Client).keepalive",
			"google.golang.org/grpc/internal/transport.(*controlBuffer).get",
			"google.golang.org/grpc/internal/transport.(*http2Client).reader",
			"google.golang.org/grpc/internal/grpcsync.(*CallbackSerializer).run",
		},
	})
}
