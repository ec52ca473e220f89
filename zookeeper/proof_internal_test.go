package zookeeper

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A follower that is cut off right after it has passed on a heartbeat has not reported
// the session to the leader: the latest acknowledgment proves nothing yet.
func TestProofNeedsThreeHeartbeats(t *testing.T) {
	t0 := time.Now()
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	l := &link{began: at(0)}
	var p proof
	p.begin(l, 250*time.Millisecond)
	for _, step := range []struct{ sent, acked, since int }{
		{10, 20, 0},       // the greeting is proven
		{110, 120, 0},     // no chain yet
		{210, 220, 0},     // 20+250 > 110
		{310, 320, 0},     //
		{410, 420, 10},    // 20+250 <= 310: the first one is proven
		{510, 900, 110},   // a slow answer
		{910, 920, 210},   // m was sent at 510
		{1010, 1020, 410}, // m at 910; 900+250 is later than that: 510 is not proven by it
		{1200, 1210, 410},
		{1300, 1310, 910},
	} {
		p.ack(l, beat{at(step.sent), at(step.acked)})
		assert.Equal(t, at(step.since), p.since, "sent at %d", step.sent)
	}
	other := &link{began: at(1400)}
	p.ack(other, beat{at(1410), at(1420)})
	assert.Equal(t, at(910), p.since, "an answer on another connection proves nothing")
	p.begin(other, 250*time.Millisecond)
	assert.Equal(t, at(910), p.since, "what was proven stays")
	p.ack(other, beat{at(1430), at(1440)})
	assert.Equal(t, at(1400), p.since, "the greeting of the new connection")
	for i := range 1000 {
		now := other.began.Add(time.Duration(i) * 100 * time.Millisecond)
		p.ack(other, beat{now, now.Add(time.Millisecond)})
	}
	assert.Less(t, len(p.beats), 10, "few are kept")
}

func TestGuardCoversHalfATick(t *testing.T) {
	assert.Equal(t, 250*time.Millisecond, guardTime(time.Second, time.Second))
	assert.Equal(t, 350*time.Millisecond, guardTime(time.Second, time.Second/2), "raised to two ticks")
}

func TestNodesAreSpentBeforeTheirSequenceHasNoOrder(t *testing.T) {
	for seq, spent := range map[string]bool{"0000000000": false, "2146435072": false, "2146435073": true,
		"2147483647": true, "-2147483648": true} {
		n, ok := parseNode("a-lock-" + seq)
		assert.True(t, ok, seq)
		assert.Equal(t, spent, n.spent(), seq)
	}
}

func TestQueueOrderSurvivesTheRollOver(t *testing.T) {
	q := readQueue([]string{
		"b-lock--2147483648", "c-lock--2147483647", "a-lock-2147483647", "x-lock-2147483646", "rubbish",
		"y-lock-", "z-lock-99999999999",
	}, "b-lock-")
	assert.Len(t, q.all, 4)
	assert.Equal(t, "x-lock-2147483646", q.all[0].name)
	assert.True(t, q.found)
	assert.Equal(t, "a-lock-2147483647", q.before()[1].name)
	q = readQueue([]string{"b-lock-0000000007", "b-lock-0000000003", "a-lock-0000000005"}, "b-lock-")
	assert.Equal(t, "b-lock-0000000003", q.self.name, "the first of those that a repeated request made (R11)")
	assert.Empty(t, q.before())
}
