package etcd

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The driver's Dial reads the endpoints that SetEndpoints and AutoSync write: under the race detector of a
// user, that was a race.
func TestEndpointsMayChangeAtAnyTime(t *testing.T) {
	t.Parallel()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}})
	require.NoError(t, err)
	defer client.Close()
	p, err := newPool(client, 100*time.Millisecond)
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for i := range 2000 {
			client.SetEndpoints(fmt.Sprintf("127.0.0.1:%d", i%2+1))
		}
	})
	for range 20 {
		p.probe(p.all()[0])
	}
	all.Wait()
	require.NoError(t, p.close())
}

// Close waits for logins that are under way, so none begins after it.
func TestNoLoginBeginsAfterClose(t *testing.T) {
	t.Parallel()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}})
	require.NoError(t, err)
	defer client.Close()
	p, err := newPool(client, time.Second)
	require.NoError(t, err)
	require.NoError(t, p.close())
	_, err = p.driver.Authenticate(p.all()[0].on(t.Context()), "u", "p")
	require.ErrorContains(t, err, "the client is closed")
}
