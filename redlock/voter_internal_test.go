package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The restart guard goes by the last vote: a server that was restarted has not
// been up for longer. An answer that is late must not make that earlier.
func TestALateAnswerDoesNotMoveTheLastVoteBack(t *testing.T) {
	v := &voter{b: &Backend{}}
	last := time.Now()
	v.note(opVote, "n", Granted, last, nil)
	v.note(opVote, "n", Granted, last.Add(-time.Second), nil)
	assert.Equal(t, last, v.voted)
	v.note(opVote, "n", Refused, last.Add(time.Second), nil)
	assert.Equal(t, last.Add(time.Second), v.voted)
}
