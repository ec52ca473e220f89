package fileguard

import (
	"os"

	"github.com/golockers/locker/fencing"
)

// OnStep has f called after each step of a write, with its name.
func (g *Guard) OnStep(f func(step string)) { g.step = f }

// Sync makes what is in f last, which is a step.
func (g *Guard) Sync(f *os.File, step string) error { return g.sync(f, step) }

// Record returns a sidecar's content: next 0 is a settled one.
func Record(mark, next fencing.Token, how string, inode uint64) []byte {
	return record{mark: mark, next: next, how: change(how), inode: inode}.encode()
}

// Names returns where the guard keeps its own files.
func (g *Guard) Names() (side, temp string) { return g.side, g.temp }
