package lab

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports come from below the range that systems take for outgoing connections (32768 and up on Linux,
// 49152 and up elsewhere): a server that is down for a while must find its port free when it comes
// back, and no outgoing connection may have been given it meanwhile. The upper end leaves room for the
// bus port of Redis Cluster, which is 10000 higher.
const (
	firstPort = 10240
	lastPort  = 22767
	busOffset = 10000
)

// portAttempts is how often a server that could not bind is started again on another port.
const portAttempts = 8

// freePort returns a port on 127.0.0.1 that nobody listens on, nor on its bus port if it needs one. No other
// call of it returns them before the test ends, in this process or another: a UDP socket, which no server
// here uses, stands for each. Somebody else may take a port before it is used, so whoever starts a server
// there must be ready to pick another one.
func freePort(t TB, bus bool) int {
	t.Helper()
	offsets := []int{0}
	if bus {
		offsets = append(offsets, busOffset)
	}
	var err error
	for range 200 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		var held []net.PacketConn
		release := func() {
			for _, c := range held {
				_ = c.Close()
			}
		}
		for _, offset := range offsets {
			var c net.PacketConn
			if c, err = reserve(loopback(port + offset)); err != nil {
				break
			}
			held = append(held, c)
		}
		if err == nil {
			t.Cleanup(release)
			return port
		}
		release()
	}
	t.Fatalf("lab: no free port between %d and %d: %v", firstPort, lastPort, err)
	return 0
}

// reserve fails if an address is in use, or reserved.
func reserve(addr string) (net.PacketConn, error) {
	var config net.ListenConfig
	held, err := config.ListenPacket(context.Background(), "udp", addr)
	if err != nil {
		return nil, err
	}
	l, err := config.Listen(context.Background(), "tcp", addr)
	if err != nil {
		_ = held.Close()
		return nil, err
	}
	return held, l.Close()
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
