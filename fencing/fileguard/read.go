package fileguard

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/localfile"
)

// Mark returns the highest token that was accepted for the file; 0 if there is
// none. By the time it is read it may be out of date. Mark waits for nobody.
func (g *Guard) Mark(ctx context.Context) (fencing.Token, error) {
	mark, err := g.observe(ctx, func() {})
	if err != nil {
		return 0, g.failed("read the mark of", err)
	}
	return mark, nil
}

// ReadFile returns the content of the file and the mark under which it stands:
// both are of one moment. If there is no file, the error matches
// [fs.ErrNotExist], and the mark is there all the same. ReadFile waits for
// nobody; a program that does not need the mark can as well open the file.
func (g *Guard) ReadFile(ctx context.Context) ([]byte, fencing.Token, error) {
	var data []byte
	var readErr error
	mark, err := g.observe(ctx, func() {
		data, readErr = g.content()
	})
	if err == nil {
		err = readErr
	}
	if err != nil {
		return nil, mark, g.failed("read", err)
	}
	return data, mark, nil
}

func (g *Guard) content() ([]byte, error) {
	f, err := os.OpenFile(g.abs, os.O_RDONLY|localfile.OpenFlags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := regular(f); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// observe calls see, and returns the mark that stood all the while. It takes no
// lock, so that a writer that is stopped holds up no reader: it looks before and
// after, and again if anything has changed. A write of the same token between
// the two looks is not noticed, and need not be.
func (g *Guard) observe(ctx context.Context, see func()) (fencing.Token, error) {
	const damaged = 20 // times in a row, and it was not just being written
	for bad := 0; ; {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		before, err := g.glance()
		if err == nil {
			see()
			var after sight
			if after, err = g.glance(); err == nil && after == before {
				return before.mark, nil
			}
		}
		if err != nil {
			if bad++; bad == damaged || !errors.Is(err, errRecord) {
				return 0, err
			}
		}
		if err := sleep(ctx, time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// sight is what is known of a file at one moment.
type sight struct {
	record record
	mark   fencing.Token
}

func (g *Guard) glance() (sight, error) {
	f, err := os.OpenFile(g.side, os.O_RDONLY|localfile.OpenFlags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return sight{}, nil
	}
	if err != nil {
		return sight{}, err
	}
	defer f.Close()
	if _, err := regular(f); err != nil {
		return sight{}, err
	}
	r, err := readRecord(f)
	if err != nil {
		return sight{}, err
	}
	mark, err := g.resolve(r)
	return sight{r, mark}, err
}
