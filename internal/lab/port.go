package lab

import (
	"context"
	"errors"
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

// freePort returns a port on 127.0.0.1 that nobody listens on, nor on its bus port. No other call of it returns them
// before the test ends, in this process or another: a UDP socket, which no server here uses, stands for each. Somebody
// else may take a port before it is used, so whoever starts a server there must be ready to pick another one.
func freePort(t TB) int {
	t.Helper()
	var err error
	for range 200 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if err = errors.Join(reserve(t, port), reserve(t, port+busOffset)); err == nil {
			return port
		}
	}
	t.Fatalf("lab: no free port between %d and %d: %v", firstPort, lastPort, err)
	return 0
}

// reserve fails if a port is in use, or reserved.
func reserve(t TB, port int) error {
	var config net.ListenConfig
	held, err := config.ListenPacket(context.Background(), "udp", loopback(port))
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = held.Close() })
	l, err := config.Listen(context.Background(), "tcp", loopback(port))
	if err != nil {
		return err
	}
	return l.Close()
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
