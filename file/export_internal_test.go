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
	if w := b.waits[waited{path: b.path(name)}]; w != nil {
		return len(w.waiters)
	}
	return 0
}
