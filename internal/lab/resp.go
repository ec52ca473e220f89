package lab

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// The part of Redis' protocol (RESP2) that questions to servers need. A driver would do, too, but every program that
// requires this module would get it.

// replyError is what a server said instead of an answer.
type replyError string

func (e replyError) Error() string { return string(e) }

// errProtocol says that an answer is none.
var errProtocol = errors.New("not an answer of Redis")

// writeCommand sends a command with its arguments: strings, []byte, or what prints as Redis reads it.
func writeCommand(w io.Writer, args ...any) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		text, isBytes := arg.([]byte)
		if !isBytes {
			text = fmt.Append(nil, arg)
		}
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(text), text)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// readReply reads one answer: nil, an int64, a string, or a []any of these and of errors. An error of the server is
// returned as replyError.
func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < len("+\r\n") || line[len(line)-2] != '\r' {
		return nil, fmt.Errorf("%w: %q", errProtocol, line)
	}
	kind, text := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return text, nil
	case '-':
		return nil, replyError(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %q", errProtocol, line)
	case kind == ':':
		return n, nil
	case (kind == '$' || kind == '*') && n == -1:
		return nil, nil
	case kind == '$' && n >= 0:
		bulk := make([]byte, n+2)
		_, err := io.ReadFull(r, bulk)
		return string(bulk[:n]), err
	case kind == '*' && n >= 0:
		list := make([]any, n)
		for i := range list {
			var said replyError
			if list[i], err = readReply(r); errors.As(err, &said) {
				list[i] = said
			} else if err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("%w: %q", errProtocol, line)
}
