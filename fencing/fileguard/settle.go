package fileguard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/golockers/locker/fencing"
)

// resolve returns the mark that a record stands for. One that is settled says
// it. Otherwise somebody was stopped in the middle, and where the file is that
// was to be moved tells whether it has been. If it is neither here nor there,
// others have been at work, and the higher number is the safe one.
func (g *Guard) resolve(r record) (fencing.Token, error) {
	if r.next == 0 {
		return r.mark, nil
	}
	from := g.temp
	if r.how == removing {
		from = g.abs
	}
	info, err := os.Lstat(from)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r.next, nil
	case err != nil:
		return 0, err
	case inodeOf(info) == r.inode:
		return r.mark, nil // not moved
	}
	return r.next, nil
}

// settle brings to an end what somebody was stopped in, and returns the mark.
// f is the sidecar, locked.
func (g *Guard) settle(f *os.File) (fencing.Token, error) {
	r, err := readRecord(f)
	if err != nil {
		return 0, err
	}
	mark, err := g.resolve(r)
	if err != nil {
		return 0, err
	}
	if r.next != 0 {
		// Before what it was derived from goes, and for good.
		if err := g.noteForGood(f, record{mark: mark}, "resettled"); err != nil {
			return 0, err
		}
	}
	return mark, g.clean()
}

// clean removes the file that was being written when somebody was stopped, or
// that was about to be gone.
func (g *Guard) clean() error {
	err := os.Remove(g.temp)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot remove what an earlier write left behind: %w", err)
	}
	return nil
}

// move carries out r, which moves a file from one place to the other, and with
// it the mark. done is false if it is known that neither has moved.
//
// The order is what makes the two one step: wherever it is cut off, the record
// says where to look, and the directory what has happened. The names that the
// record relies on are there for good before (syncDir).
func (g *Guard) move(f *os.File, r record, from, to string) (done bool, err error) {
	if err = g.noteForGood(f, r, "noted"); err == nil {
		err = os.Rename(from, to)
	}
	if err != nil {
		back := g.noteForGood(f, record{mark: r.mark}, "taken back")
		if back == nil && r.how == replacing {
			back = g.clean()
		}
		return false, errors.Join(err, back)
	}
	g.at("renamed")
	if err := g.syncDir("synced"); err != nil {
		return true, fmt.Errorf("it is done, but may not last over a power cut: %w", err)
	}
	// Not for good: should it be lost, the one before says the same.
	if err := (record{mark: r.next}).note(f); err != nil {
		return true, fmt.Errorf("it is done, but that could not be noted, which is left to the next write: %w", err)
	}
	g.at("settled")
	return true, nil
}
