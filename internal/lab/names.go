package lab

import (
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"sync/atomic"
)

// Forward makes addr lead to a server, until it is ended: it refuses everybody then, or keeps silent. Where the machine
// has no such address, the test is skipped.
func Forward(t TB, addr, to string) (end func(silent bool)) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		t.Skip("lab: a second loopback address is needed: ", err)
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

// StartNames starts a name server that has the address at, a net.IP, for each name, and returns where it is.
func StartNames(t TB, at *atomic.Value) string {
	t.Helper()
	server, err := (&net.ListenConfig{}).ListenPacket(context.Background(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("lab: start a name server: %v", err)
	}
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
