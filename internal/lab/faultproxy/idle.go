package faultproxy

import "time"

// SetIdle closes both ends of each connection on which neither end has sent anything for d, as load
// balancers and firewalls do: [Stats.Idle] counts them. Zero ends it.
func (p *Proxy) SetIdle(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.idle == nil
	p.idle = &d
	if first && !p.closed {
		p.spawn(p.closeIdle)
	}
}

func (p *Proxy) closeIdle() {
	for p.ctx.Err() == nil {
		p.mu.Lock()
		limit := *p.idle
		for l := range p.links {
			if limit > 0 && time.Since(l.used()) > limit && !l.closedIdle {
				l.closedIdle = true
				p.stats.Idle++
				l.close()
			}
		}
		p.mu.Unlock()
		select {
		case <-p.ctx.Done():
		case <-time.After(max(limit/20, time.Millisecond)):
		}
	}
}

// used is when something was sent last.
func (l *Link) used() time.Time {
	used := l.made
	for _, p := range []*pipe{l.requests, l.replies} {
		p.mu.Lock()
		if p.sent.After(used) {
			used = p.sent
		}
		p.mu.Unlock()
	}
	return used
}
