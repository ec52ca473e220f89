package lab_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

func TestHookRunsBeforeTheRequestIsForwarded(t *testing.T) {
	r, p := proxied(t)
	a := dial(t, p)
	var seen atomic.Value
	p.OnRequest("INCR n", func(*lab.Link) {
		time.Sleep(20 * time.Millisecond) // the request would have arrived by now
		reply, err := r.Do("EXISTS", "n")
		seen.Store([]any{reply, err})
		p.SetReplies(lab.Hold) // holds for the reply of this very request
	})
	a.send("PING\r\n")
	a.expect("+PONG\r\n")
	a.send("INCR n\r\n")
	eventually(t, "the reply is held", func() bool { return p.Stats().Replies.Held == 4 })
	assert.Equal(t, []any{int64(0), nil}, seen.Load())
	assert.Equal(t, "1", r.MustDo(t, "GET", "n"))
	p.SetReplies(lab.Pass)
	a.expect(":1\r\n")
}

func TestHookRunsOnceUnlessSetAgain(t *testing.T) {
	_, p := proxied(t)
	a := dial(t, p)
	var once, twice atomic.Int64
	p.OnRequest("PING", func(*lab.Link) { once.Add(1) })
	p.OnRequest("PING", func(*lab.Link) {
		twice.Add(1)
		p.OnRequest("PING", func(*lab.Link) { twice.Add(1) })
	})
	for range 4 {
		a.send("PING\r\n")
		a.expect("+PONG\r\n")
	}
	assert.EqualValues(t, 1, once.Load())
	assert.EqualValues(t, 2, twice.Load())
}

func TestHookRunsOnceHoweverManyAreFirst(t *testing.T) {
	_, p := proxied(t)
	var ran atomic.Int64
	// Two connections meet here, when both have already looked which hooks there are.
	var meet sync.WaitGroup
	meet.Add(2)
	rendezvous := func(*lab.Link) {
		meet.Done()
		meet.Wait()
	}
	p.OnRequest("one", rendezvous)
	p.OnRequest("two", rendezvous)
	p.OnRequest("ECHO", func(*lab.Link) { ran.Add(1) })
	a, b := dial(t, p), dial(t, p)
	a.send("ECHO one\r\n")
	b.send("ECHO two\r\n")
	a.expect("$3\r\none\r\n")
	b.expect("$3\r\ntwo\r\n")
	assert.EqualValues(t, 1, ran.Load())
}

func TestHookRemovedDoesNotRun(t *testing.T) {
	_, p := proxied(t)
	a := dial(t, p)
	cancel := p.OnRequest("PING", func(*lab.Link) { t.Error("removed, and run") })
	assert.True(t, cancel())
	assert.False(t, cancel())
	ran := p.OnRequest("PING", func(*lab.Link) {})
	a.send("PING\r\n")
	a.expect("+PONG\r\n")
	assert.False(t, ran(), "it has run")
}

func TestHookFindsAPatternSplitOverPackets(t *testing.T) {
	r, p := proxied(t)
	a := dial(t, p)
	var ran atomic.Int64
	p.OnRequest("INCR number", func(l *lab.Link) {
		ran.Add(1)
		l.SetRequests(lab.Hold)
	})
	for i, part := range []string{"IN", "CR nu", "mber", "\r\n"} {
		a.send(part)
		eventually(t, "sent, and forwarded until it is held", func() bool {
			requests := p.Stats().Requests
			return requests.Sent == int64([]int{2, 7, 11, 13}[i]) && (i >= 2 || requests.Held == 0)
		})
	}
	assert.EqualValues(t, 1, ran.Load())
	assert.EqualValues(t, 6, p.Stats().Requests.Held, "the packet that completed it was held")
	assert.Nil(t, r.MustDo(t, "GET", "number"))
}

func TestHookMayKillTheServer(t *testing.T) {
	r, p := proxied(t)
	a := dial(t, p)
	a.send("PING\r\n")
	a.expect("+PONG\r\n")
	killed := make(chan struct{})
	p.OnRequest("SET", func(*lab.Link) {
		r.Kill()
		close(killed)
	})
	a.send("SET k v\r\n")
	_, err := a.answer(soon)
	require.Error(t, err)
	<-killed
	assert.False(t, r.Running())
}

func TestLoseReplyAfterTheRequestWasCarriedOut(t *testing.T) {
	r, p := proxied(t)
	a, other := dial(t, p), dial(t, p)
	p.LoseReply("INCR")
	a.send("PING\r\n")
	a.expect("+PONG\r\n")
	a.send("INCR n\r\n")
	eventually(t, "swallowed", func() bool { return p.Stats().Replies.Dropped == 4 })
	assert.Equal(t, "1", r.MustDo(t, "GET", "n"))
	a.send("PING\r\n") // carried out, and not answered in place of the INCR
	a.silent()
	other.send("INCR n\r\n")
	other.expect(":2\r\n")
	p.Set(lab.Pass)
	a.silent()
	_ = a.Close()
	eventually(t, "the lost connection ends when its client does", func() bool { return p.Stats().Open == 1 })
}

func TestCutReplyAfterTheRequestWasCarriedOut(t *testing.T) {
	r, p := proxied(t)
	a, other := dial(t, p), dial(t, p)
	p.CutReply("INCR")
	other.send("PING\r\n")
	other.expect("+PONG\r\n")
	a.send("INCR n\r\n")
	a.isReset()
	assert.Equal(t, "1", r.MustDo(t, "GET", "n"), "the client must not be reset before the server has done it")
	other.send("INCR n\r\n")
	other.expect(":2\r\n")
}

func TestLinkIsResetAlone(t *testing.T) {
	_, p := proxied(t)
	a, other := dial(t, p), dial(t, p)
	other.send("PING\r\n")
	other.expect("+PONG\r\n")
	p.OnRequest("SET", func(l *lab.Link) { l.Reset() })
	a.send("SET k v\r\n")
	a.isReset()
	other.send("EXISTS k\r\n")
	other.expect(":0\r\n")
}
