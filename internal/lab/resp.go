package lab

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// ReplyError is an error that a Redis server answered, with its code: "NOAUTH Authentication required."
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// Conn is a connection to a Redis server that speaks its protocol (version 2), just enough to look at a
// server from outside: tests must see it with other eyes than the driver under test. It is for one
// goroutine at a time.
type Conn struct {
	raw net.Conn
	r   *bufio.Reader
}

func newConn(raw net.Conn) *Conn { return &Conn{raw: raw, r: bufio.NewReader(raw)} }

// Do sends one command and waits two minutes at most for its reply, which is as [Redis.Do] says. After an error
// that is no [ReplyError] the connection is of no more use.
func (c *Conn) Do(args ...any) (any, error) { return c.do(patience, args...) }

// Close closes the connection.
func (c *Conn) Close() error { return c.raw.Close() }

// do sends one command and reads its reply: nil, int64, string, []any, or a ReplyError as the error.
func (c *Conn) do(timeout time.Duration, args ...any) (any, error) {
	if err := c.raw.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		text := fmt.Sprint(arg)
		if raw, ok := arg.([]byte); ok {
			text = string(raw)
		}
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(text), text)
	}
	if _, err := c.raw.Write(b.Bytes()); err != nil {
		return nil, err
	}
	reply, err := c.read()
	if e, ok := reply.(ReplyError); ok {
		return nil, e
	}
	return reply, err
}

// read reads a reply, or a command.
func (c *Conn) read() (any, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, rest := line[0], line[1:max(1, len(line)-2)]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return ReplyError(rest), nil
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil || kind != ':' && kind != '$' && kind != '*' {
		return nil, fmt.Errorf("lab: not a Redis reply: %q", line)
	}
	switch {
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		text := make([]byte, n+2)
		if _, err := io.ReadFull(c.r, text); err != nil {
			return nil, err
		}
		return string(text[:n]), nil
	}
	list := make([]any, n)
	for i := range list {
		if list[i], err = c.read(); err != nil {
			return nil, err
		}
	}
	return list, nil
}
