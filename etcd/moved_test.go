package etcd_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/lab"
)

// A name of a URL that leads elsewhere later: it is looked up for each connection. A child asks, since who
// looks up names belongs to the whole process.
func TestAddressBehindANameIsLookedUpAgain(t *testing.T) {
	t.Parallel()
	for _, old := range []string{"gone", "silent"} {
		t.Run("the old address "+old, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, 1)
			_, port, err := net.SplitHostPort(s.Nodes[0].Addr())
			require.NoError(t, err)
			var at atomic.Value
			names := dns(t, &at)
			at.Store(net.IPv4(127, 0, 0, 2))
			end := forward(t, "127.0.0.2:"+port, s.Nodes[0].Addr())
			child := lab.StartChild(t, "moved", names, "etcd://members.test:"+port)
			child.Expect(t, "held", time.Minute)
			forward(t, "127.0.0.3:"+port, s.Nodes[0].Addr())
			at.Store(net.IPv4(127, 0, 0, 3))
			end(old == "silent")
			child.Send(t, "moved")
			child.Expect(t, "works, and nothing was lost", time.Minute)
		})
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
	c, err := etcd.Openers.Open(ctx, p.Args[1], &locker.Options{TTL: 8 * time.Second})
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

// forward makes addr lead to a member, until it is ended: it refuses everybody then, or keeps silent.
func forward(t *testing.T, addr, to string) (end func(silent bool)) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Skipf("a second loopback address is needed: %v", err)
	}
	var mu sync.Mutex
	var open []net.Conn
	var silent atomic.Bool
	pipe := func(from, to net.Conn) {
		buf := make([]byte, 1<<15)
		for {
			n, err := from.Read(buf)
			if err == nil && !silent.Load() {
				_, err = to.Write(buf[:n])
			}
			if err != nil {
				_, _ = from.Close(), to.Close()
				return
			}
		}
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			mu.Lock()
			open = append(open, in, out)
			mu.Unlock()
			all.Go(func() { pipe(in, out) })
			all.Go(func() { pipe(out, in) })
		}
	})
	end = func(becomesSilent bool) {
		if silent.Store(becomesSilent); becomesSilent {
			return
		}
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	}
	t.Cleanup(func() { end(false) })
	return end
}

// dns starts a server that says at for each name, and returns where it is.
func dns(t *testing.T, at *atomic.Value) string {
	server, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			question := buf[12:n]
			end := strings.IndexByte(string(question), 0) + 5
			reply := append([]byte{buf[0], buf[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question[:end]...)
			if binary.BigEndian.Uint16(question[end-4:]) == 1 { // an IPv4 address is asked for
				reply[7] = 1
				reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
				reply = append(reply, at.Load().(net.IP).To4()...)
			}
			_, _ = server.WriteTo(reply, from)
		}
	}()
	return server.LocalAddr().String()
}
