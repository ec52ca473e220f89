package testserver

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
// higher by one of the offsets. Somebody else may take it before it is used, so whoever starts a
// server there must be ready to pick another one.
func freePort(offsets ...int) (int, error) {
	var err error
	for range 200 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		err = bindable(port)
		for _, offset := range offsets {
			if err == nil {
				err = bindable(port + offset)
			}
		}
		if err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("testserver: no free port between %d and %d: %w", firstPort, lastPort, err)
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
