package single_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// fake is a server that gives the answers that it is told to, for those that a Redis cannot be brought to give.
type fake struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu       sync.Mutex
	reply    string         // to EVALSHA and EVAL, with its type and \r\n; "": the connection is closed instead
	received map[string]int // by lower-case command
}

func startFake(t *testing.T, reply string) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fake{listener: l, reply: reply, received: map[string]int{}}
	f.serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.serving.Go(func() { f.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		f.serving.Wait()
	})
	return f
}

// client returns a client of f. It is closed before f ends, which waits for its connections.
func (f *fake) client(t *testing.T) *redis.Client {
	return newClient(t, &redis.Options{Addr: f.listener.Addr().String(), Protocol: 2})
}

func (f *fake) count(command string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.received[command]
}

func (f *fake) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	for {
		args, err := readCommand(in)
		if err != nil {
			return
		}
		command := strings.ToLower(args[0])
		f.mu.Lock()
		f.received[command]++
		reply := f.reply
		f.mu.Unlock()
		switch command {
		case "evalsha", "eval":
		case "hello":
			reply = "-ERR unknown command 'HELLO'\r\n"
		default:
			reply = "+OK\r\n"
		}
		if reply == "" {
			return
		}
		if _, err := io.WriteString(c, reply); err != nil {
			return
		}
	}
}

func readCommand(in *bufio.Reader) ([]string, error) {
	n, err := readLength(in, '*')
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		length, err := readLength(in, '$')
		if err != nil {
			return nil, err
		}
		word := make([]byte, length+len("\r\n"))
		if _, err := io.ReadFull(in, word); err != nil {
			return nil, err
		}
		args[i] = string(word[:length])
	}
	return args, nil
}

func readLength(in *bufio.Reader, kind byte) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("%q does not begin with %c", line, kind)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
