package etcd_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
)

// lockLater calls Lock on a goroutine of its own.
func lockLater(ctx context.Context, c *locker.Client, name string) <-chan locked {
	answer := make(chan locked, 1)
	go func() {
		l, err := c.Lock(ctx, name)
		answer <- locked{l, err, time.Now()}
	}()
	return answer
}

type locked struct {
	lease *locker.Lease
	err   error
	at    time.Time
}

// watched waits until there are so many watches of waiters, on all members together: who is
// in the queue may not have been told so yet, and does not watch yet.
func (s scene) watched(t testing.TB, n int) {
	t.Helper()
	s.watchedWithin(t, 30*time.Second, n)
}

func (s scene) watchedWithin(t testing.TB, d time.Duration, n int) {
	t.Helper()
	const gauge = "etcd_debugging_mvcc_watcher_total "
	web := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	eventually(t, d, "as many watches", func() bool {
		found := 0
		for _, member := range s.Nodes {
			req, err := http.NewRequestWithContext(
				t.Context(),
				http.MethodGet,
				"http://"+member.Addr()+"/metrics",
				nil,
			)
			require.NoError(t, err)
			resp, err := web.Do(req)
			if err != nil {
				return false
			}
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			_, value, ok := strings.Cut(string(text), "\n"+gauge)
			count, _, _ := strings.Cut(value, "\n")
			watches, parseErr := strconv.Atoi(count)
			if err != nil || !ok || parseErr != nil {
				return false
			}
			found += watches
		}
		sessions, err := s.admin.Leases(t.Context()) // each watches its own key, too
		return err == nil && found >= n+len(sessions.Leases)
	})
}

// nobody fails the test if one of the waiters has been answered.
func nobody(t testing.TB, answers ...<-chan locked) {
	t.Helper()
	for _, answer := range answers {
		select {
		case a := <-answer:
			require.Fail(t, "nobody gets in", "lease %v, error %v", a.lease, a.err)
		default:
		}
	}
}

func (s scene) get(t testing.TB, answer <-chan locked, d time.Duration) locked {
	t.Helper()
	select {
	case a := <-answer:
		require.NoError(t, a.err)
		return a
	case <-time.After(d):
		require.Fail(t, "the waiter did not get the lock within "+d.String())
		return locked{}
	}
}

// beforeThePoll is when a waiter is told whom a watch or a keep-alive tells, on a slow machine too: the poll comes
// after 20 s or so.
const beforeThePoll = 10 * time.Second

// scene is a cluster and somebody who looks at it.
type scene struct {
	*lab.EtcdCluster
	admin *clientv3.Client
}

func newScene(t testing.TB, members int, opts ...lab.Option) scene {
	s := lab.StartEtcd(t, members, opts...)
	return scene{s, dial(t, s.Addrs())}
}

// parallelScene is newScene for a test that runs beside others.
func parallelScene(t *testing.T, members int, opts ...lab.Option) scene {
	t.Helper()
	t.Parallel()
	return newScene(t, members, opts...)
}

// queued waits until n keys are in the queue. Those that only make a late request void are not among them.
func (s scene) queued(t testing.TB, name string, n int) {
	t.Helper()
	eventually(t, 30*time.Second, "as many in the queue", func() bool {
		resp, err := s.admin.Get(within(t, 5*time.Second), queue(name),
			clientv3.WithRange(queue(name)+"~"), clientv3.WithCountOnly())
		return err == nil && resp.Count == int64(n)
	})
}

// withAuth turns authentication on: root, and locker with the least rights.
func withAuth(t testing.TB, admin *clientv3.Client) {
	t.Helper()
	ctx := within(t, 20*time.Second)
	for _, user := range []string{"root", "locker", "stranger"} {
		_, err := admin.UserAdd(ctx, user, "pass")
		require.NoError(t, err)
	}
	_, err := admin.UserGrantRole(ctx, "root", "root")
	require.NoError(t, err)
	_, err = admin.RoleAdd(ctx, "locker")
	require.NoError(t, err)
	_, err = admin.RoleGrantPermission(ctx, "locker", "locker/1/",
		clientv3.GetPrefixRangeEnd("locker/1/"), clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	_, err = admin.UserGrantRole(ctx, "locker", "locker")
	require.NoError(t, err)
	_, err = admin.AuthEnable(ctx)
	require.NoError(t, err)
}
