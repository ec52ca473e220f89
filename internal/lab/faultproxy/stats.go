package faultproxy

// Stats counts what went through a [Proxy] since it was started.
type Stats struct {
	Accepted int // connections, those refused included
	Refused  int // connections reset at once, because the mode was Reset
	Idle     int // connections closed by [Proxy.SetIdle]
	Open     int // connections that are not over; one with held bytes is not, even if its client has hung up

	Packets int64 // how often something was read from clients: about one for each request

	Requests Flow // client to server
	Replies  Flow // server to client
}

// Flow counts the bytes of one direction. Sent = Delivered + Held + Dropped.
type Flow struct {
	Sent      int64 // read from the sender
	Delivered int64 // written to the receiver, or about to be
	Held      int64 // waiting, because of Hold, of a delay, or for their turn
	Dropped   int64 // swallowed, by Drop or because the receiver is gone
}

func (f *Flow) add(g Flow) {
	f.Sent += g.Sent
	f.Delivered += g.Delivered
	f.Held += g.Held
	f.Dropped += g.Dropped
}

// Stats returns the numbers as they are now. Wait on them, instead of sleeping, to know that a request
// has reached the proxy.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Open = len(p.links)
	for l := range p.links {
		s.Packets += l.requests.packets()
		s.Requests.add(l.requests.flow())
		s.Replies.add(l.replies.flow())
	}
	return s
}
