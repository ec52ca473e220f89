package etcd

// LookAtWaiters makes the rare look at what all waiters rely on come now.
func (b *Backend) LookAtWaiters() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.sessions {
		s.poll.tickNow()
	}
}
