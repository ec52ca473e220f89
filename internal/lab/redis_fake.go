package lab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// FakeRedis is a server that answers scripts with what it was told to, for answers that no Redis gives.
type FakeRedis struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu       sync.Mutex
	received map[string]int    // by lower-case command
	answers  map[string]string // the same
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
	f := &FakeRedis{listener: l, received: map[string]int{}, answers: map[string]string{
		"hello": "-ERR unknown command 'HELLO'\r\n",
		"info":  "-NOPERM this user has no permissions to run the 'info' command\r\n",
	}}
	for _, command := range []string{"evalsha", "eval", "subscribe"} {
		f.answers[command] = reply
	}
	life, end := context.WithCancel(context.Background())
	f.serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(life, func() { _ = c.Close() })
			f.serving.Go(func() { f.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		end()
		f.serving.Wait()
	})
	return f
}

// Addr returns the host:port of the server.
func (f *FakeRedis) Addr() string { return f.listener.Addr().String() }

// Answer has the server answer a command, by its lower-case name, with reply.
func (f *FakeRedis) Answer(command, reply string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[command] = reply
}

// Count returns how often a command came, by its lower-case name.
func (f *FakeRedis) Count(command string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.received[command]
}

func (f *FakeRedis) serve(raw net.Conn) {
	defer func() { _ = raw.Close() }()
	for r := bufio.NewReader(raw); ; {
		command, err := readCommand(r)
		if err != nil {
			return
		}
		f.mu.Lock()
		f.received[command]++
		reply, known := f.answers[command]
		f.mu.Unlock()
		if !known {
			reply = "+OK\r\n"
		}
		if _, err := io.WriteString(raw, reply); err != nil || reply == "" {
			return
		}
	}
}

// readCommand reads a command with its arguments, and returns its lower-case name.
func readCommand(r *bufio.Reader) (command string, err error) {
	var words, size int
	_, err = fmt.Fscanf(r, "*%d\n", &words)
	for i := range words {
		if _, err = fmt.Fscanf(r, "$%d\n", &size); err != nil {
			return "", err
		}
		text := make([]byte, size+len("\r\n"))
		if _, err = io.ReadFull(r, text); err != nil {
			return "", err
		}
		if i == 0 {
			command = strings.ToLower(string(text[:size]))
		}
	}
	return command, err
}
