package single_test

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/single"
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

// newNode returns a Node that is closed with the test.
func newNode(t testing.TB, client redis.UniversalClient, opts *single.NodeOptions) *single.Node {
	t.Helper()
	node, err := single.NewNode(client, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	return node
}

// newClient returns a client that is closed with the test.
func newClient(t testing.TB, opts *redis.Options) *redis.Client {
	t.Helper()
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

const soon = 5 * time.Second

// owner returns a value that nobody else has.
func owner() string {
	var b [20]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// awkward are names that a careless key layout confuses.
var awkward = []string{
	"", "a", "%", "%25", "%7D", "{", "}", "{}", "{}a", "a{b}c", "a}:fence", "}:void:x", "{{a}}",
	"a:fence", "a:void:x", "locker:1:{a}", "\x00", "\xff\xfe", "a\r\nb", "*", "[a-z]?",
}
