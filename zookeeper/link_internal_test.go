package zookeeper

import (
	"bufio"
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// quick is a connection whose answers are read before Write has returned.
type quick struct {
	net.Conn
	answers chan []byte
}

func (c *quick) Write(p []byte) (int, error) {
	c.answers <- make([]byte, answerHead)
	time.Sleep(time.Millisecond)
	return len(p), nil
}

func (c *quick) Read(p []byte) (int, error) { return copy(p, <-c.answers), nil }

// The driver reads a number when it sends its watches again, and writes it with each answer: no answer comes before.
func TestAnswersWaitForTheWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &quick{answers: make(chan []byte, 2)}
		l := &link{Conn: c, in: bufio.NewReader(c), session: &session{backend: &Backend{opts: Options{SessionTimeout: time.Minute}}},
			greeted: true, restore: make(chan struct{})}
		packet := func(op uint32) []byte { return binary.BigEndian.AppendUint32(make([]byte, 8), op) }
		var passed atomic.Bool
		go func() {
			_, _ = l.Read(make([]byte, answerHead))
			passed.Store(true)
		}()
		_, _ = l.Write(packet(1))
		synctest.Wait()
		assert.False(t, passed.Load())
		_, _ = l.Write(packet(opSetWatches))
		synctest.Wait()
		assert.True(t, passed.Load())
	})
}
