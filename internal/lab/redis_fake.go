package lab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
)

// FakeRedis is a server that answers scripts with what it was told to, for answers that no Redis gives.
type FakeRedis struct {
	listener net.Listener
	serving  sync.WaitGroup
	reply    string

	mu       sync.Mutex
	open     map[net.Conn]bool
	received map[string]int // by lower-case command
}

// StartFakeRedis starts a server that answers EVALSHA and EVAL with reply, which has its type and its end
// of line, or closes the connection if reply is "". Its user may not run INFO, and it does not know HELLO.
// It ends with the test.
func StartFakeRedis(t TB, reply string) *FakeRedis {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("lab: %v", err)
	}
	f := &FakeRedis{listener: l, reply: reply, open: map[net.Conn]bool{}, received: map[string]int{}}
	f.serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.open[c] = true
			f.mu.Unlock()
			f.serving.Go(func() { f.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		f.mu.Lock()
		for c := range f.open {
			_ = c.Close()
		}
		f.mu.Unlock()
		f.serving.Wait()
	})
	return f
}

// Addr returns the host:port of the server.
func (f *FakeRedis) Addr() string { return f.listener.Addr().String() }

// Count returns how often a command came, by its lower-case name.
func (f *FakeRedis) Count(command string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.received[command]
}

func (f *FakeRedis) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.open, c)
	}()
	in := bufio.NewReader(c)
	for {
		args, err := readCommand(in)
		if err != nil {
			return
		}
		command := strings.ToLower(args[0])
		f.mu.Lock()
		f.received[command]++
		f.mu.Unlock()
		reply := "+OK\r\n"
		switch command {
		case "evalsha", "eval", "subscribe":
			reply = f.reply
		case "hello":
			reply = "-ERR unknown command 'HELLO'\r\n"
		case "info":
			reply = "-NOPERM this user has no permissions to run the 'info' command\r\n"
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
