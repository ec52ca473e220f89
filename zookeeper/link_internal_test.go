package zookeeper

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	lasting "github.com/golockers/locker/internal/session"
)

// canned is a connection with the prepared answers of a server, which arrive byte by byte.
type canned struct {
	net.Conn
	answers io.Reader
	sent    [][]byte
}

func (c *canned) SetDeadline(time.Time) error { return nil }
func (c *canned) Read(p []byte) (int, error)  { return c.answers.Read(p[:1]) }
func (c *canned) Write(p []byte) (int, error) {
	c.sent = append(c.sent, bytes.Clone(p))
	return len(p), nil
}
func (c *canned) begin(s *session) (l *link) { return newLink(s, c, "a", time.Second) }
func packet(head ...any) []byte {
	var b bytes.Buffer
	for _, part := range append(head, make([]byte, 30)) {
		_ = binary.Write(&b, binary.BigEndian, part)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(b.Len())), b.Bytes()...)
}

// The driver sees no transaction's number, so that it cannot write one while it reads it. What it sends gets the
// session's number, as it was when the connection began.
func TestDriverKeepsNoNumberOfTransactions(t *testing.T) {
	const before, now = 7, 1 << 40
	greeting := packet(int32(0), int32(4000), int64(99))
	s := &session{
		Session: lasting.New(time.Hour), backend: &Backend{opts: Options{SessionTimeout: time.Minute}},
		servers: newServers([]string{"a"}), changed: make(chan struct{}), relinked: make(chan struct{}),
	}
	s.seen.Store(before)
	var answers []byte
	for _, one := range [][]byte{
		greeting, packet(int32(-1), int64(now+1), int32(0)), packet(int32(1), int64(now), int32(0)),
		packet(int32(2), int64(0), int32(-101)), packet(int32(-2), int64(now+2), int32(0)),
	} {
		answers = append(answers, one...)
	}
	c := &canned{answers: bytes.NewReader(answers)}
	l := c.begin(s)
	write := func(p []byte, at int, want int64) {
		t.Helper()
		was := bytes.Clone(p)
		_, err := l.Write(p)
		require.NoError(t, err)
		assert.Equal(t, was, p, "it is the driver's")
		sent := c.sent[len(c.sent)-1]
		assert.EqualValues(t, want, binary.BigEndian.Uint64(sent[at:]))
		copy(sent[at:at+8], was[at:])
		assert.Equal(t, was, sent, "the rest is as it was")
	}
	write(packet(int32(0), int64(1), int32(4000)), 8, before)
	got := make([]byte, len(greeting))
	_, err := io.ReadFull(l, got)
	require.NoError(t, err)
	assert.Equal(t, greeting, got)
	id, timeout := s.granted()
	assert.EqualValues(t, 99, id)
	assert.Equal(t, 4*time.Second, timeout)
	write(packet(int32(1), int32(opSetWatches), int64(1)), 12, before)
	write(packet(int32(2), int32(4), int64(1)), 12, 1)
	for _, want := range []struct{ request, failed int32 }{{-1, 0}, {1, 0}, {2, -101}, {-2, 0}} {
		got := make([]byte, len(packet(int32(0), int64(0), int32(0))))
		_, err := io.ReadFull(l, got)
		require.NoError(t, err)
		assert.Equal(t, packet(want.request, int64(0), want.failed), got)
	}
	assert.EqualValues(t, now, s.seen.Load(), "those of events and pings do not count, as with the driver")
	write(packet(int32(3), int32(opSetWatches), int64(1)), 12, before)
	l = c.begin(s)
	write(packet(int32(0), int64(1), int32(4000)), 8, now)
}

// A server of another protocol counts as one that fails, whatever it says.
func TestServersOfAnotherProtocol(t *testing.T) {
	for _, length := range []uint32{0, 4, 7, 15, 1 << 30, 1 << 31} {
		for _, greeted := range []bool{false, true} {
			s := &session{Session: lasting.New(time.Hour), backend: &Backend{}, servers: newServers([]string{"a"}),
				changed: make(chan struct{}), timeout: time.Second}
			l := (&canned{answers: bytes.NewReader(append(binary.BigEndian.AppendUint32(nil, length), make([]byte, 100)...))}).begin(s)
			l.greeted.Store(greeted)
			_, err := io.ReadAll(l)
			if !greeted || length < packetHead-4 {
				require.Error(t, err, length)
			}
			assert.Equal(t, greeted, s.servers.outage == nil)
		}
	}
}

// A greeting whose answer is cut off has not taken up the session.
func TestGreetingThatIsCutOff(t *testing.T) {
	for _, n := range []int{0, 3, packetHead, len(packet(int64(0), int64(0))) - 1} {
		s := &session{Session: lasting.New(time.Hour), backend: &Backend{}, servers: newServers([]string{"a"}),
			changed: make(chan struct{}), timeout: time.Second}
		l := (&canned{answers: bytes.NewReader(packet(int64(0), int64(99))[:n])}).begin(s)
		_, err := l.Read(make([]byte, 100))
		require.ErrorIs(t, err, io.EOF)
		assert.Nil(t, s.link)
		assert.ErrorIs(t, s.servers.outage, errNotServing)
	}
}
