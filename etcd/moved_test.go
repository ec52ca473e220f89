package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// A name of a URL that leads elsewhere later: it is looked up for each connection. A child asks, since who
// looks up names belongs to the whole process.
func TestProveAddressBehindANameIsLookedUpAgain(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	for name, version := range versions {
		for _, old := range []string{"gone", "silent"} {
			t.Run("the old address "+old+", "+name, func(t *testing.T) {
				t.Parallel()
				s := newScene(t, 1, version...)
				_, port, err := net.SplitHostPort(s.Nodes[0].Addr())
				require.NoError(t, err)
				var at atomic.Value
				names := lab.StartNames(t, &at)
				at.Store(net.IPv4(127, 0, 0, 2))
				end := lab.Forward(t, "127.0.0.2:"+port, s.Nodes[0].Addr())
				child := lab.StartChild(t, "moved", names, "etcd://members.test:"+port)
				child.Expect(t, "held", time.Minute)
				lab.Forward(t, "127.0.0.3:"+port, s.Nodes[0].Addr())
				at.Store(net.IPv4(127, 0, 0, 3))
				end(old == "silent")
				child.Send(t, "moved")
				child.Expect(t, "works, and nothing was lost", time.Minute)
			})
		}
	}
}

// A connection that nobody has used for a while is closed, or forgotten without a word, on the way: the next request
// is sent again on another.
func TestProveConnectionThatHasEndedCostsOneMore(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	for name, version := range versions {
		for how, end := range map[string]func(*lab.Proxy){
			"closed":    func(p *lab.Proxy) { p.Set(lab.Reset); p.Set(lab.Pass) },
			"forgotten": func(p *lab.Proxy) { p.Set(lab.Drop); p.PassNew() },
		} {
			t.Run(how+", "+name, func(t *testing.T) {
				t.Parallel()
				s := newScene(t, 1, version...)
				road := lab.StartProxy(t, s.Nodes[0].Addr())
				c := client(t, []string{road.Addr()}, 20*time.Second)
				held := locktest.Lock(t, c, "held")
				for i := range 3 {
					end(road)
					l := locktest.Lock(t, c, fmt.Sprint("n", i))
					require.NoError(t, l.Unlock(t.Context()))
				}
				require.NoError(t, held.Err())
				require.NoError(t, held.Unlock(t.Context()))
			})
		}
	}
}

// moved is the child. Its arguments: where to look up names, a URL.
func moved(p *lab.Parent) {
	net.DefaultResolver = &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "udp", p.Args[0])
		},
	}
	ctx := context.Background()
	c, err := locker.Open(ctx, p.Args[1], &locker.Options{TTL: 8 * time.Second}, etcd.Openers)
	if err != nil {
		p.Say("error %v", err)
		return
	}
	held, err := c.Lock(ctx, "n")
	p.Say("held %v", err)
	p.Hear()
	until := held.Until()
	if l, lockErr := c.Lock(ctx, "m"); lockErr != nil {
		err = lockErr
	} else {
		err = l.Unlock(ctx)
	}
	time.Sleep(time.Until(until))
	if err = errors.Join(err, held.Err(), held.Unlock(ctx)); err != nil {
		p.Say("error %v", err)
		return
	}
	p.Say("works, and nothing was lost")
}
