package file

import "github.com/golockers/locker/internal/localfile"

// Tests of the edges look at these directly.
var (
	FileName    = fileName
	MakePrivate = makePrivate
)

const MaxThreads = maxThreads

// Waiters returns how many wait in this Backend for the lock called name alone, and how many for its turn.
func (b *Backend) Waiters(name string) (alone, turn int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.path(name)
	return len(b.waits[waited{at, localfile.Exclusive}]), len(b.waits[waited{turnOf(at), localfile.Exclusive}])
}

// Dir is where the locks of this Backend are.
func (b *Backend) Dir() string { return b.dir }
