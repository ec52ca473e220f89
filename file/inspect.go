package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/localfile"
)

// Inspect says who holds name: the label is the holder's, the token that of
// its lease. How many wait only the kernel knows.
//
// To look, it takes a shared lock on the file for some microseconds if that is
// free. TryLock knows about that; `flock --nonblock` of a shell script does not.
func (b *Backend) Inspect(ctx context.Context, name string) (locker.State, error) {
	free := locker.State{Waiters: -1}
	f, err := os.OpenFile(b.path(name), os.O_RDONLY|localfile.OpenFlags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return free, ctx.Err()
	}
	if err != nil {
		return free, unavailable(err)
	}
	defer f.Close()
	if err := checkRegular(f); err != nil {
		return free, err
	}
	pause := visitorPause
	for range visitorTries {
		err = localfile.Flock(f, localfile.Shared|localfile.NoWait)
		if err == nil {
			return free, localfile.Flock(f, localfile.Unlock)
		}
		if !errors.Is(err, localfile.ErrBusy) {
			return free, unavailable(err)
		}
		var r record
		if r, _, err = read(f, name); err == nil && r.pid != 0 {
			return locker.State{Held: true, Label: r.label, Token: r.token, Waiters: -1}, ctx.Err()
		}
		// Its holder is about to write, or it is nobody's: see again.
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return free, ctx.Err()
		}
		pause *= 2
	}
	if err != nil {
		return free, fmt.Errorf("it is held, by whom is not readable: %w", err)
	}
	return locker.State{Held: true, Waiters: -1}, ctx.Err()
}
