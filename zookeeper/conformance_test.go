package zookeeper_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/zookeeper"
)

const (
	suiteTTL = time.Second
	// Locks last as long as the session. It is short in checks that wait for their
	// end, and in the others longer than anything that happens to the servers.
	shortSession = 3200 * time.Millisecond
	longSession  = 20 * time.Second
)

// lasting lists the checks in which a lock has to outlive something, or need not end,
// so that a long session tolerates a busy machine.
var lasting = []string{
	"restart", "failover", "server-crashes", "clock-jump", "names", "deletion",
	"wake-up", "nothing-piles-up", "exclusion", "many",
}

func sessionOf(check string) time.Duration {
	switch {
	case check == "many" && testing.Short(): // it waits for the end of a session
		return 8 * time.Second
	case slices.Contains(lasting, check):
		return longSession
	}
	return shortSession
}

// dial returns a connection of the driver, and how to close it.
func dial(t testing.TB, addrs []string) (*zk.Conn, func()) {
	t.Helper()
	c, done, err := connect(addrs)
	require.NoError(t, err)
	return c, done
}

const sessionsUntold = "a server tells nobody how long the session of another lasts"

// harness is for the suite on a set of servers.
func harness(t *testing.T, addrs []string) conformance.Harness {
	return conformance.Harness{
		Sessions: true,
		TTL:      suiteTTL,
		New:      func(ct conformance.T) driver.Backend { return newForSuite(ct, addrs) },
		Names:    []string{"%beat-x", "%2E", ".", "..", "zookeeper", "x-lock-0000000001"},
		Cut: func(ct conformance.T) (driver.Backend, conformance.Fault) {
			w := lab.StartProxy(ct)
			return newForSuite(ct, w.Through(addrs...)), w
		},
		Delete: func(ct conformance.T, name string) {
			admin, done := dial(t, addrs)
			defer done()
			children, err := childrenOf(admin, name)
			for i, path := range children { // the holder, or all who share
				if err == nil && (i == 0 || strings.Contains(children[0], "-read-") && strings.Contains(path, "-read-")) {
					if err = admin.Delete(path, -1); errors.Is(err, zk.ErrNoNode) {
						err = nil // its holder has just left
					}
				}
			}
			if err != nil {
				ct.Errorf("%v", err)
			}
		},
		Victim: func(ct conformance.T, name string, _ time.Duration) func() {
			child := lab.StartChild(t, "hold", strings.Join(addrs, ","), name, sessionOf(ct.Name()).String())
			child.Expect(t, "holding", soon)
			return child.Kill
		},
		Untold: map[string]string{"Inspect time": sessionsUntold, "List time": sessionsUntold},
		Left: func(_ conformance.T, name string) []string {
			admin, done := dial(t, addrs)
			defer done()
			children, err := childrenOf(admin, name)
			if err != nil {
				return []string{err.Error()}
			}
			return children
		},
		// These belong to servers that are restarted.
		KnownGoroutines: []string{"github.com/golockers/locker/internal/lab.(*Process).start.func1"},

		URL:  "zookeeper://" + strings.Join(addrs, ",") + "/locker?ttl=" + sessionOf("url").String(),
		Open: conformance.OpenWith(zookeeper.Openers),
	}
}

func newForSuite(ct conformance.T, addrs []string) driver.Backend {
	b, err := zookeeper.New(addrs, &zookeeper.Options{SessionTimeout: sessionOf(ct.Name())})
	if err != nil {
		ct.Errorf("%v", err)
		ct.FailNow()
	}
	return b
}

// childrenOf returns the paths of the nodes in the queue of name.
func childrenOf(c *zk.Conn, name string) ([]string, error) {
	dir := "/locker/" + zookeeper.Encode(name)
	if _, err := c.Sync(dir); err != nil {
		return nil, err
	}
	names, _, err := c.Children(dir)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "%tokens" }) // stays by design
	slices.SortFunc(names, func(a, b string) int {                                        // by their place
		return strings.Compare(a[max(0, len(a)-10):], b[max(0, len(b)-10):])
	})
	for i := range names {
		names[i] = dir + "/" + names[i]
	}
	return names, err
}

// seesClock waits until a server uses the time of its clock.
func seesClock(t testing.TB, z *lab.ZooKeeper) {
	t.Helper()
	admin, done := dial(t, []string{z.Addr()})
	defer done()
	require.Eventually(t, func() bool {
		path, err := admin.Create("/clock-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		if err != nil {
			return false
		}
		_, stat, err := admin.Get(path)
		return err == nil && time.UnixMilli(stat.Ctime).Sub(z.Now()).Abs() < 10*time.Second
	}, soon, 20*time.Millisecond, "the server at %s does not see the jump of its clock", z.Addr())
}

func TestConformance(t *testing.T) {
	z := lab.StartZooKeeper(t, lab.WithClock())
	h := harness(t, []string{z.Addr()})
	h.JumpClock = func(_ conformance.T, d time.Duration) {
		z.JumpClock(t, d)
		seesClock(t, z)
		time.Sleep(time.Second / 2) // a server looks every tick, of 200 ms, which sessions are over
	}
	h.Restart = func(conformance.T) { z.Kill(); z.Restart(t) }
	conformance.Run(t, h)
}

func TestProveConformanceOfThreeServers(t *testing.T) {
	lab.NeedProve(t)
	e := lab.StartZooKeeperEnsemble(t, 3)
	h := harness(t, e.Addrs())
	h.Unproven = map[string]string{
		"clock-jump": "an ensemble under libfaketime takes minutes to elect; it is proven on one server",
	}
	h.Restart = func(conformance.T) {
		for _, s := range e.Servers {
			s.Kill()
		}
		e.Restart(t)
	}
	h.Failover = func(ct conformance.T) {
		ct.Cleanup(func() { e.Restart(t) })
		old := e.Leader(t)
		old.Kill()
		e.Leader(t, e.Others(old)...)
	}
	h.Crash = func(_ conformance.T, n int) func() {
		for range n {
			old := e.Leader(t)
			old.Kill()
			e.Leader(t, e.Others(old)...) // an election on a busy machine takes seconds
		}
		return func() { e.Restart(t) }
	}
	// Its clients notice by a heartbeat, of which there are ten in a timeout, that has no answer for 5 s. What they ask
	// until then fails.
	const noticed = longSession/10 + 5*time.Second + time.Second
	h.Hang = func(conformance.T, int) func() { // one of three
		still, began := e.Leader(t), time.Now()
		still.Pause()
		e.Leader(t, e.Others(still)...)
		time.Sleep(time.Until(began.Add(noticed)))
		return func() {
			still.Resume()
			e.Leader(t) // before the next script: it thinks for a moment that it leads, and would be taken for the leader
		}
	}
	conformance.Run(t, h)
}
