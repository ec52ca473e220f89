package zookeeper

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	lasting "github.com/golockers/locker/internal/session"
)

// From each state, an entry moves only to the states that the drawing allows, however
// late a watch or an answer comes. Its room is given back once, when it has no node and
// can get none.
func TestStatesOfAnEntry(t *testing.T) {
	names := []string{"none", "sent", "queued", "held", "leaving"}
	//        none, sent, queued, held, leaving
	becomes := [][]state{
		none:    {none, sent, none, none, none},
		sent:    {none, sent, queued, sent, sent},
		queued:  {none, queued, queued, held, leaving},
		held:    {none, held, held, held, leaving},
		leaving: {none, leaving, leaving, leaving, leaving},
	}
	const room, others = 100, 1000
	for from, row := range becomes {
		for to, want := range row {
			told := 0
			on := &session{Session: lasting.New(time.Hour), backend: new(Backend), paths: room + others}
			e := &entry{s: on, state: state(from), room: room,
				lost: func() { told++ }}
			what := names[from] + " → " + names[to]
			for range 2 {
				if state(to) == none {
					e.gone()
				} else {
					e.become(state(to))
				}
				assert.Equal(t, names[want], names[e.current()], what)
			}
			taken := others
			if want != none {
				taken += room
			}
			assert.Equal(t, taken, e.s.paths, what)
			if state(from) == held && state(to) == none {
				assert.Equal(t, 1, told, what)
			} else {
				assert.Zero(t, told, what)
			}
		}
	}
}

// A creation that has not been sent when its session is over is never sent. If it has been, its outcome is unknown.
func TestWhatWasNotSentIsNeverSent(t *testing.T) {
	fresh, under := &entry{}, &entry{sending: make(chan struct{})}
	assert.True(t, fresh.unsent())
	assert.True(t, fresh.void)
	assert.False(t, under.unsent())
	assert.False(t, under.void)
}

// The service has removed all nodes of a session that it reports as expired, so that nobody needs to look for them.
// Those who waited on it can ask again.
func TestExpiredSessionIsGone(t *testing.T) {
	s := &session{Session: lasting.New(time.Hour)}
	s.event(zk.Event{Type: zk.EventSession, State: zk.StateExpired})
	require.True(t, s.IsGone())
	e := &entry{s: s, state: queued}
	assert.ErrorIs(t, e.wait(t.Context(), func() {}), driver.ErrUnavailable)
	assert.True(t, e.settled())
}
