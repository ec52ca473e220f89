package compare

import (
	"bytes"
	"encoding/binary"
	"sync"
	"time"

	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/lab"
)

// wire sees what passes between one holder and its servers, and notes the answers that were slow.
type wire struct {
	mu    sync.Mutex
	talks map[*lab.Link]*talk
	slow  []history.Event
}

// slowAnswer is how long an answer may take before it is noted.
const slowAnswer = 20 * time.Millisecond

// talk is one connection. In HTTP/2 (etcd), what a stream brings answers what was asked on it. Other protocols
// answer in order: what comes is taken for the answer to all that was asked.
type talk struct {
	http2 bool
	sent  [2]frames        // by the client, and by the server
	asked map[uint32]int64 // by stream, or 0: since when an answer is due
}

// saw is told what was sent on a connection. No data is its end.
func (w *wire) saw(l *lab.Link, reply bool, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t, now := w.talks[l], history.Now()
	if t == nil {
		if reply || len(data) == 0 {
			return
		}
		t = &talk{asked: map[uint32]int64{}}
		data, t.http2 = bytes.CutPrefix(data, []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
		w.talks[l] = t
	} else if len(data) == 0 {
		for _, since := range t.asked {
			w.answered(since, now)
		}
		delete(w.talks, l)
		return
	}
	parts, from := []frame{{}}, &t.sent[0]
	if reply {
		from = &t.sent[1]
	}
	if t.http2 {
		parts = from.read(data)
	}
	for _, p := range parts {
		since, due := t.asked[p.stream]
		if due && (reply || p.canceled) {
			w.answered(since, now)
			delete(t.asked, p.stream)
		} else if !due && !reply && !p.canceled {
			t.asked[p.stream] = now
		}
	}
}

func (w *wire) answered(since, now int64) {
	if now-since > int64(slowAnswer) {
		w.slow = append(w.slow, history.Event{At: now, Kind: history.Slow, Value: now - since})
	}
}

// take returns what was slow since it was last called, and what is still due.
func (w *wire) take() []history.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := history.Now()
	for _, t := range w.talks {
		for stream, since := range t.asked {
			w.answered(since, now)
			t.asked[stream] = now
		}
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

// frame is a part of a request or of an answer, or the client's word that it awaits none any more.
type frame struct {
	stream   uint32
	canceled bool
}

func (f *frames) read(data []byte) (parts []frame) {
	const dataFrame, headers, reset = 0, 1, 3
	for len(data) > 0 {
		if n := min(f.skip, len(data)); n > 0 {
			data, f.skip = data[n:], f.skip-n
			continue
		}
		n := copy(f.head[f.has:], data)
		data, f.has = data[n:], f.has+n
		if f.has < len(f.head) {
			break
		}
		f.has, f.skip = 0, int(f.head[0])<<16|int(f.head[1])<<8|int(f.head[2])
		if kind := f.head[3]; kind == headers || kind == reset || kind == dataFrame && f.skip > 0 {
			parts = append(parts, frame{binary.BigEndian.Uint32(f.head[5:]), kind == reset})
		}
	}
	return parts
}
