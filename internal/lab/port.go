package lab

import (
	"context"
	"fmt"
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

// freePort returns a port on 127.0.0.1 that nobody listens on, and neither on the ports that are
// higher by one of the offsets. No other call of it returns any of them before the test ends, in this
// process or another: a UDP socket, which no server here uses, stands for each. Somebody else may take
// a port before it is used, so whoever starts a server there must be ready to pick another one.
func freePort(t TB, offsets ...int) (int, error) {
	t.Helper()
	var err error
	for range 200 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		var held []net.PacketConn
		for _, offset := range append([]int{0}, offsets...) {
			var c net.PacketConn
			if c, err = reserve(port + offset); err != nil {
				break
			}
			held = append(held, c)
		}
		if err == nil {
			t.Cleanup(func() { release(held) })
			return port, nil
		}
		release(held)
	}
	return 0, fmt.Errorf("lab: no free port between %d and %d: %w", firstPort, lastPort, err)
}

// reserve fails if a port is in use, or reserved.
func reserve(port int) (net.PacketConn, error) {
	held, err := (&net.ListenConfig{}).ListenPacket(context.Background(), "udp", loopback(port))
	if err != nil {
		return nil, err
	}
	if err := bindable(port); err != nil {
		_ = held.Close()
		return nil, err
	}
	return held, nil
}

func release(held []net.PacketConn) {
	for _, c := range held {
		_ = c.Close()
	}
}

func bindable(port int) error {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", loopback(port))
	if err != nil {
		return err
	}
	return l.Close()
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
