package compare

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/lab"
)

// What is due is what was asked and has no answer. In HTTP/2 only a frame of the same stream is one; pings, settings
// and windows are none, and ask nothing.
func TestTheWireTellsWhatIsDue(t *testing.T) {
	http2 := func(kind byte, stream byte, payload string) string {
		return string([]byte{0, 0, byte(len(payload)), kind, 0, 0, 0, 0, stream}) + payload
	}
	const start = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	data, headers, reset, settings, ping := byte(0), byte(1), byte(3), byte(4), byte(6)
	ask := "> " + start + http2(settings, 0, "123456") + http2(headers, 1, "h") + http2(data, 1, "body")
	half := len(ask) - 3
	for _, test := range []struct {
		name string
		sent []string // "> " by the client, "< " by the server; no more: the end; "": a second passes
		due  int      // seconds
	}{
		{"an answer", []string{"> ask", "< answer", ""}, 0},
		{"a slow one", []string{"> ask", "", "> more", "< answer", ""}, 1},
		{"none", []string{"> ask", "", ""}, 2},
		{"none, of a connection that ends", []string{"> ask", "", "> ", "", "< "}, 1},
		{"the server speaks first", []string{"< hello", "", "< "}, 0},
		{"the server speaks first, and HTTP/2", []string{"< " + http2(settings, 0, ""), ask, "", "< " +
			http2(ping, 0, "12345678"), ""}, 2},
		{"of a stream", []string{ask, "< " + http2(headers, 1, "h"), ""}, 0},
		{"in pieces", []string{ask[:half], "> " + ask[half:], "", "< " + http2(data, 1, "body")[:5],
			"> " + http2(ping, 0, "12345678"), "", "< " + http2(data, 1, "body")[5:], ""}, 2},
		{"of another stream", []string{ask, "< " + http2(headers, 3, "h"), ""}, 1},
		{"none but settings and a ping", []string{ask, "< " + http2(settings, 0, "") + http2(ping, 0, "12345678"), ""}, 1},
		{"it pings", []string{ask, "< " + http2(headers, 1, "h"), "> " + http2(ping, 0, "12345678"), ""}, 0},
		{"the end of what is asked", []string{ask, "< " + http2(headers, 1, "h"), "> " + http2(data, 1, ""), ""}, 0},
		{"canceled", []string{ask, "", "> " + http2(reset, 1, "1234"), "", "> " + http2(reset, 1, "1234"), ""}, 1},
	} {
		w, link, due := wire{talks: map[*lab.Link]*talk{}}, &lab.Link{}, int64(0)
		for _, s := range test.sent {
			if s != "" {
				w.saw(link, s[0] == '<', []byte(s[2:]), len(s) == 2)
				continue
			}
			for _, talk := range w.talks {
				for stream := range talk.asked {
					talk.asked[stream] -= 1e9
				}
			}
		}
		all := w.take()
		for _, e := range all {
			assert.Equal(t, history.Slow, e.Kind)
			due += e.Value
		}
		assert.InDelta(t, test.due, float64(due)/1e9, 0.5, "%s: %+v", test.name, all)
		for _, e := range w.take() { // since then
			assert.Less(t, e.Value, int64(time.Second/2), "%s: told twice", test.name)
		}
	}
}
