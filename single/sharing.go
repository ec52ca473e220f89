package single

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/redisconn"
)

// Locks that many hold together. What is kept of them is in value.lua and sharers.lua.

//go:embed sharers.lua
var sharersText string

//go:embed enter.lua
var enterText string

//go:embed share.lua
var shareText string

//go:embed stay.lua
var stayText string

//go:embed leave.lua
var leaveText string

//go:embed census.lua
var censusText string

//go:embed dissolve.lua
var dissolveText string

var mostText = "local MOST = " + strconv.Itoa(driver.MaxSharers) + "\n"

// askWithin is how soon a writer that waits for sharers asks again: in time for its note,
// which lasts a second, even if one request and its repetition take long.
const askWithin = 300 * time.Millisecond

// dissolve removes all who share a lock with the token, if there are any.
func (s *server) dissolve(ctx context.Context, k *redisconn.Keys, token uint64) error {
	_, _, err := s.state(ctx, s.dissolveScript.Call("break", k.Name, 2, k.Lock, k.Wait(), s.Publish(),
		fmt.Sprintf("%0*d", tokenDigits, token), voidTime.Milliseconds()))
	return err
}

// status is what a server knows of a lock.
type status struct {
	redisconn.Status
	shared  bool
	sharers int
	some    []string // the owner values of some sharers
}

// census completes the status of a lock that is shared; false: it is not, any more.
func (s *server) census(ctx context.Context, k *redisconn.Keys, st *status) (bool, error) {
	c, err := s.Do(ctx, s.censusScript.Call("inspect", k.Name, 1, k.Lock))
	if err != nil {
		return false, err
	}
	defer c.Recycle()
	if c.Reply() == int64(0) {
		return false, nil
	}
	if v, ok := c.Reply().([]any); ok && len(v) == 3 {
		many, ok1 := v[0].(int64)
		left, ok2 := v[1].(int64)
		some, ok3 := v[2].([]any)
		if ok1 && ok2 && ok3 && many >= int64(len(some)) && (many > 0) == (len(some) > 0) {
			st.Held, st.sharers, st.Left = many > 0, int(many), redisconn.LeftOf(left)
			for _, owner := range some {
				text, _ := owner.(string)
				st.some = append(st.some, text)
			}
			return true, nil
		}
	}
	return false, s.Unexpected(c.Op, c.Reply())
}

// sharing completes the State of a lock that is shared.
func (st *status) sharing(state *driver.State) {
	state.Sharers = st.sharers
	for _, owner := range st.some {
		if _, label, _ := strings.Cut(owner, labelMark); !slices.Contains(state.Sharing, label) {
			state.Sharing = append(state.Sharing, label)
		}
	}
	state.Label = state.Sharing[0]
}

// refused is the answer for a lock that others have.
func (h *hold) refused(a answer, wait bool) (*driver.Refusal, error) {
	if a.full > 0 {
		return nil, fmt.Errorf("redis %s: %d share %q, and no more can: %w", h.b.server.Addr(), a.full, h.keys.Name,
			driver.ErrRefused)
	}
	held := &driver.Refusal{Remaining: a.left}
	switch {
	case wait && a.sharers:
		held.AskWithin, held.Leave = askWithin, h.removeNote
	case wait:
		held.Leave = h.leaveLine
	}
	return held, nil
}

// leaveLine takes the client out of those who wait, so that the lock is not kept for it. Its place is not worth
// more time than a turn. Callers of it that have come meanwhile found the place, and ask anew, whatever
// has become of the request; for one that arrives later still there is the poll (R14).
func (h *hold) leaveLine(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	_, err := h.b.server.unline(ctx, &h.keys)
	h.b.wakes.Wake(h.keys.Name)
	return failure(err)
}

// removeNote removes what h has left in the service as a writer that waits.
func (h *hold) removeNote(ctx context.Context) error {
	_, err := h.b.server.release(ctx, &h.keys, true, 0)
	return failure(err)
}
