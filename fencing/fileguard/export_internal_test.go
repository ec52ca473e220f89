package fileguard

import "os"

// OnStep has f called after each step of a write, with its name.
func (g *Guard) OnStep(f func(step string)) { g.step = f }

// Sync makes what is in f last, which is a step.
func (g *Guard) Sync(f *os.File, step string) error { return g.sync(f, step) }
