package lab

import "sync"

// isolation knows which connections between members come from whom, so that one member can be cut off
// from the others: each tells its own address when it connects to another.
type isolation struct {
	mu    sync.Mutex
	links map[*Etcd][]*Link // by the member that opened them
	// forwards are connections on which a follower hands the renewal of leases on. They do not tell whose
	// they are, and count as everybody's.
	forwards []*Link
	alone    *Etcd
}

func watchPeers(c *EtcdCluster) *isolation {
	cut := &isolation{links: map[*Etcd][]*Link{}}
	for _, to := range c.Nodes {
		for _, from := range c.Nodes {
			if from != to {
				cut.watch(to.proxy, "X-Peerurls: "+from.peerURL()+"\r\n", func(l *Link) {
					cut.links[from] = append(cut.links[from], l)
					drop(l, cut.alone == from)
				})
			}
		}
		cut.watch(to.proxy, "POST /leases", func(l *Link) {
			cut.forwards = append(cut.forwards, l)
			drop(l, cut.alone != nil)
		})
	}
	return cut
}

// watch calls fn with the lock held whenever pattern passes.
func (cut *isolation) watch(p *Proxy, pattern string, fn func(*Link)) {
	p.OnRequest(pattern, func(l *Link) {
		cut.mu.Lock()
		fn(l)
		cut.mu.Unlock()
		cut.watch(p, pattern, fn)
	})
}

func drop(l *Link, really bool) {
	if really {
		l.Requests(Drop)
		l.Replies(Drop)
	}
}

// Isolate cuts a member off from the others, in both directions, and not from clients. Nothing tells
// either side: what they send is swallowed. No lease is renewed through any follower meanwhile. The
// function returned undoes it. One member can be isolated at a time; the cluster needs [WithPeerProxies].
func (c *EtcdCluster) Isolate(n *Etcd) (undo func()) {
	cut := c.cut
	cut.mu.Lock()
	defer cut.mu.Unlock()
	cut.alone = n
	n.proxy.Set(Drop)
	for _, l := range append(cut.links[n], cut.forwards...) {
		drop(l, true)
	}
	return func() {
		cut.mu.Lock()
		defer cut.mu.Unlock()
		cut.alone = nil
		n.proxy.Set(Pass)
		// They have lost bytes: both ends have to begin anew.
		for _, l := range append(cut.links[n], cut.forwards...) {
			l.Reset()
		}
		delete(cut.links, n)
		cut.forwards = nil
	}
}
