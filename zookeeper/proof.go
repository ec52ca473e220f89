package zookeeper

import "time"

// proof is what a session knows about its own life: a moment from which, or from a
// later one, the service counts the timeout (R1, R5). It is guarded by session.mu.
//
// The leader counts. A server that leads, or stands alone, counts the timeout from
// each request that it gets. A follower collects which sessions have sent something,
// and reports them to the leader with its next answer to the leader's ping, which
// comes every half tick. So an answer through a follower does not prove that the
// leader has counted from the request: the follower may be cut off right after it.
// Three writes in a row do prove it:
//
//	i   is acknowledged: the follower has noted the session
//	m   is sent at least half a tick later: the leader's ping is on its way or answered;
//	    acknowledged: what the leader sent before has reached the follower, including the ping
//	n   is sent after that, on the same path as the answer to the ping and behind it;
//	    acknowledged: the leader has both, so it counts from the sending of i or later
//
// The acknowledgement of n also proves that the leader was in charge when it got n.
// Its successor counts every session from its own beginning, which is later still.
//
// A connection begins with a greeting, which takes up the session at the leader
// itself (a follower asks it): the moment when the greeting was sent is proven by the
// first write on that connection.
type proof struct {
	link  *link
	guard time.Duration // at least half a tick of the servers
	beats []beat        // acknowledged on link, oldest first
	since time.Time     // the session's timeout counts from here at the least
}

// beat is a write to the service that was acknowledged.
type beat struct{ sent, acked time.Time }

// begin starts over on a new connection. What was proven stays proven.
func (p *proof) begin(l *link, guard time.Duration) {
	*p = proof{link: l, guard: guard, since: p.since}
}

// ack adds a write that was sent and acknowledged on l.
func (p *proof) ack(l *link, n beat) {
	if l != p.link {
		return // another connection has begun since it was sent: it proves nothing
	}
	since := l.began
	if len(p.beats) > 0 {
		m := p.beats[len(p.beats)-1]
		keep := 0
		for k, i := range p.beats {
			if i.acked.Add(p.guard).After(m.sent) {
				break
			}
			since, keep = i.sent, k
		}
		p.beats = append(p.beats[:0], p.beats[keep:]...)
	}
	p.beats = append(p.beats, n)
	if since.After(p.since) {
		p.since = since
	}
}

// guardTime is how far apart i and m have to be. ZooKeeper's own shortest session is
// two ticks, so a quarter of the timeout is at least half a tick. If the servers have
// raised the timeout to their shortest, that leaves nothing for a leader that pings
// late, so the guard is longer.
func guardTime(granted, asked time.Duration) time.Duration {
	if granted > asked {
		return granted * 35 / 100
	}
	return granted / 4
}
