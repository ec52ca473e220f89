package fileguard

import "os"

// sync makes what is in f last over a power cut, and is the step that says so:
// the step is told here and nowhere else, so that a test notices a sync that is
// missing or out of its order.
func (g *Guard) sync(f *os.File, step string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	g.at(step)
	return nil
}

// syncDir makes what was renamed, made and removed in the directory last.
func (g *Guard) syncDir(step string) error {
	d, err := os.Open(g.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	err = g.sync(d, step)
	if cannotSync(err) {
		return nil // this file system has no such thing, and does it by itself or not at all
	}
	return err
}

// noteForGood writes r into the sidecar f, and makes it last.
func (g *Guard) noteForGood(f *os.File, r record, step string) error {
	if err := r.note(f); err != nil {
		return err
	}
	return g.sync(f, step)
}
