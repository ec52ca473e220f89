package lab

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The part of PostgreSQL's protocol (version 3.0) that one statement needs, for a role that is trusted. A driver would
// do, too, but every program that requires this module would get it. A psql for each takes four times as long.

// errProtocolPG says that an answer is none.
var errProtocolPG = errors.New("not an answer of PostgreSQL")

// message is one of the client: its kind, and what fill appends.
func message(kind byte, fill ...any) []byte {
	m := []byte{kind, 0, 0, 0, 0}
	for _, f := range fill {
		switch f := f.(type) {
		case string:
			m = append(append(m, f...), 0)
		case []byte:
			m = append(m, f...)
		case int16:
			m = binary.BigEndian.AppendUint16(m, uint16(f))
		case int32:
			m = binary.BigEndian.AppendUint32(m, uint32(f))
		}
	}
	binary.BigEndian.PutUint32(m[1:], uint32(len(m)-1))
	return m
}

// queryPG logs in and executes one statement, whose arguments are sent as text. It returns the first column of the
// first row, or "".
func queryPG(conn io.ReadWriter, role, statement string, args ...any) (text string, err error) {
	login := message(0, int32(3<<16), "user", role, "database", "postgres", "")[1:] // it has no kind
	if _, err := conn.Write(login); err != nil {
		return "", err
	}
	answers := bufio.NewReader(conn)
	if _, err := readPG(answers); err != nil {
		return "", err
	}
	// Parse, Bind, Execute and Sync, of a statement and a portal without a name.
	bind := []any{"", "", int16(0), int16(len(args))}
	for _, arg := range args {
		value, isBytes := arg.([]byte)
		if isBytes {
			value = fmt.Appendf(nil, `\x%x`, value)
		} else {
			value = fmt.Append(nil, arg)
		}
		bind = append(bind, int32(len(value)), value)
	}
	bind = append(bind, int16(0))
	trip := append(message('P', "", statement, int16(0)), message('B', bind...)...)
	trip = append(append(trip, message('E', "", int32(0))...), message('S')...)
	if _, err := conn.Write(trip); err != nil {
		return "", err
	}
	text, err = readPG(answers)
	_, _ = conn.Write(message('X')) // or the server logs that the client has gone
	return text, err
}

// readPG reads until the server is ready for the next statement, and returns the first column of the first row.
func readPG(answers io.Reader) (text string, err error) {
	for rows := 0; ; {
		var head [5]byte
		if _, failed := io.ReadFull(answers, head[:]); failed != nil {
			return "", errors.Join(err, failed) // a server that refuses a login says why, and hangs up
		}
		size := binary.BigEndian.Uint32(head[1:])
		if size < 4 || size > 1<<28 {
			return "", errProtocolPG
		}
		body := make([]byte, size-4)
		if _, failed := io.ReadFull(answers, body); failed != nil {
			return "", failed
		}
		switch head[0] {
		case 'R':
			if binary.BigEndian.Uint32(body) != 0 {
				return "", fmt.Errorf("%w: it asks for a password", errProtocolPG)
			}
		case 'D': // columns, the first one's size (-1: NULL), and its text
			if rows++; rows == 1 && binary.BigEndian.Uint16(body) > 0 {
				if n := int32(binary.BigEndian.Uint32(body[2:])); n >= 0 {
					text = string(body[6 : 6+n])
				}
			}
		case 'E':
			err = saidPG(body)
		case 'Z':
			return text, err
		}
	}
}

// saidPG is an error of the server, as "ERROR: text (SQLSTATE 12345)".
func saidPG(body []byte) error {
	fields := map[byte]string{}
	for field := range strings.SplitSeq(string(body), "\x00") {
		if field != "" {
			fields[field[0]] = field[1:]
		}
	}
	return fmt.Errorf("%s: %s (SQLSTATE %s)", fields['S'], fields['M'], fields['C'])
}
