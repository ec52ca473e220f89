package redlock

import (
	"slices"
	"strings"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/redisnode"
)

// picture makes one state of what the nodes have.
func (b *Backend) picture(seen []redisnode.Status) locker.State {
	byValue := map[string][]redisnode.Status{}
	for _, st := range seen {
		if st.Held {
			byValue[st.Value] = append(byValue[st.Value], st)
		}
	}
	silent := len(b.voters) - len(seen)
	state := locker.State{Waiters: -1}
	most := 0
	for value, at := range byValue {
		if len(at)+silent < b.quorum || len(at) <= most {
			continue
		}
		most = len(at)
		var left []time.Duration
		var token uint64
		for _, st := range at {
			left = append(left, max(st.Left, 0))
			token = max(token, st.Token)
		}
		slices.SortFunc(left, func(a, b time.Duration) int { return int(b - a) })
		_, label, _ := strings.Cut(value, labelMark)
		// It lasts as long as a quorum has it.
		state = locker.State{Held: true, Label: label, Remaining: left[min(b.quorum, len(left))-1], Token: token, Waiters: -1}
	}
	return state
}
