package zkguard_test

import (
	"bytes"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/golockers/locker/fencing"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gate is a network that can keep the driver's goroutine that writes.
type gate struct {
	mu     sync.Mutex
	onGet  func()        // called before a mark is asked for, once
	closed chan struct{} // what has "blocker" in it waits for it; nil: for nothing
}

type gated struct {
	net.Conn
	gate *gate
}

func (g *gate) dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	c, err := net.DialTimeout(network, addr, timeout)
	return gated{c, g}, err
}

func (c gated) Write(p []byte) (int, error) {
	c.gate.mu.Lock()
	onGet, closed := c.gate.onGet, c.gate.closed
	if bytes.Contains(p, []byte("/mark/r")) {
		c.gate.onGet = nil
	} else {
		onGet = nil
	}
	c.gate.mu.Unlock()
	if onGet != nil {
		onGet()
	}
	if closed != nil && bytes.Contains(p, []byte("/blocker")) {
		<-closed
	}
	return c.Conn.Write(p)
}

// The driver writes operations into its packet when it gets to them, which may
// be after their caller has given up and uses the memory for something else.
func TestOperationsAreTheCallersAgain(t *testing.T) {
	s := newScene(t)
	put(t, s.admin, "/data", "")
	network := &gate{}
	conn, _, err := zk.Connect([]string{s.server.Addr()}, 4*time.Second, zk.WithLogger(silent{}),
		zk.WithDialer(network.dial))
	require.NoError(t, err)
	defer conn.Close()
	g := newGuard(t, conn, nil)
	_, err = g.Multi(within(t, soon), "r", 1)
	require.NoError(t, err)
	for attempt := 0; ; attempt++ {
		require.Less(t, attempt, 50, "the operation was always sent before it was given up")
		value := fmt.Sprint("given-", attempt)
		ops := []any{set("/data", value)}
		passed := make(chan struct{})
		network.mu.Lock()
		network.closed = make(chan struct{})
		network.onGet = func() {
			go func() {
				defer close(passed)
				_, _, err := conn.Exists("/blocker")
				assert.NoError(t, err)
			}()
			time.Sleep(5 * time.Millisecond) // for it to be next in the driver's queue; if it is not, once more
		}
		closed := network.closed
		network.mu.Unlock()
		_, err := g.Multi(within(t, 300*time.Millisecond), "r", 1, ops...)
		copy(ops[0].(*zk.SetDataRequest).Data, "wrong-wrong")
		close(closed)
		<-passed
		if err == nil {
			continue
		}
		require.ErrorIs(t, err, fencing.ErrUnknown)
		require.Eventually(t, func() bool {
			data, _ := look(t, s.admin, "/data")
			require.NotContains(t, data, "wrong")
			return data == value
		}, soon, time.Millisecond, "it was sent late")
		return
	}
}
