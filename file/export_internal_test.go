package file

// Tests of the edges look at these directly.
var (
	FileName    = fileName
	MakePrivate = makePrivate
)

const MaxThreads = maxThreads

// Waiters returns how many wait in this Backend for the lock called name, and how many for its turn.
func (b *Backend) Waiters(name string) (lock, turn int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for on, w := range b.waits {
		switch on.path {
		case b.path(name):
			lock += len(w.waiters)
		case turnOf(b.path(name)):
			turn += len(w.waiters)
		}
	}
	return lock, turn
}
