package compare

import (
	"bytes"
	"encoding/binary"
	"sync"
	"time"

	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/lab"
)

// wire sees what passes between one holder and its servers, and records slow answers.
type wire struct {
	mu    sync.Mutex
	talks map[*lab.Link]*talk
	slow  []history.Event
}

// slowAnswer is how long an answer may take before it is recorded.
const slowAnswer = 20 * time.Millisecond

// talk is one connection. In HTTP/2 (etcd), data on a stream answers that stream's request. Other
// protocols answer in order: any data counts as the answer to all requests so far.
type talk struct {
	http2             bool
	requests, replies frames
	asked             map[uint32]int64 // by stream, or 0: since when an answer is due
}

// saw is called with data sent on a connection, and at the end of this direction.
func (w *wire) saw(l *lab.Link, reply bool, data []byte, end bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.talks[l]
	switch {
	case t == nil && reply:
		return // the server speaks first, or last
	case t == nil:
		t = &talk{asked: map[uint32]int64{}}
		data, t.http2 = bytes.CutPrefix(data, []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
		w.talks[l] = t
	}
	part := func(stream uint32, canceled bool) {
		if since := t.asked[stream]; since != 0 && (reply || canceled) {
			w.answered(since)
			delete(t.asked, stream)
		} else if since == 0 && !reply && !canceled {
			t.asked[stream] = history.Now()
		}
	}
	switch {
	case !t.http2 && len(data) > 0:
		part(0, false)
	case reply:
		t.replies.read(data, part)
	default:
		t.requests.read(data, part)
	}
	if end {
		w.due(t)
		delete(w.talks, l)
	}
}

// answered records an answer that came now, or never came.
func (w *wire) answered(since int64) {
	if now := history.Now(); now-since > int64(slowAnswer) {
		w.slow = append(w.slow, history.Event{At: now, Kind: history.Slow, Value: now - since})
	}
}

// due records the answers that are due, and restarts their time.
func (w *wire) due(t *talk) {
	for stream, since := range t.asked {
		w.answered(since)
		t.asked[stream] = history.Now()
	}
}

// take returns the slow answers since the last call, and those still due.
func (w *wire) take() []history.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.talks {
		w.due(t)
	}
	all := w.slow
	w.slow = nil
	return all
}

// frames reads the frames of one direction of HTTP/2 (RFC 9113, section 4.1).
type frames struct {
	head [9]byte
	has  int // of head
	skip int // of the payload
}

// read reports the parts of requests or answers in the next data, or that an answer is no longer
// awaited.
func (f *frames) read(data []byte, part func(stream uint32, canceled bool)) {
	const dataFrame, headers, reset = 0, 1, 3
	for len(data) > 0 {
		if n := min(f.skip, len(data)); n > 0 {
			data, f.skip = data[n:], f.skip-n
			continue
		}
		n := copy(f.head[f.has:], data)
		data, f.has = data[n:], f.has+n
		if f.has < len(f.head) {
			return
		}
		f.has, f.skip = 0, int(f.head[0])<<16|int(f.head[1])<<8|int(f.head[2])
		if kind := f.head[3]; kind == headers || kind == reset || kind == dataFrame && f.skip > 0 {
			part(binary.BigEndian.Uint32(f.head[5:]), kind == reset)
		}
	}
}
