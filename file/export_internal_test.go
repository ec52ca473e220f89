package file

// Tests of the edges look at these directly.
var (
	FileName    = fileName
	MakePrivate = makePrivate
)

const MaxThreads = maxThreads

// Waiters returns how many wait for name in this Backend.
func (b *Backend) Waiters(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for on, w := range b.waits {
		if on.path == b.path(name) || on.path == turnOf(b.path(name)) {
			n += len(w.waiters)
		}
	}
	return n
}
