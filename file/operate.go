package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/localfile"
)

var (
	_ driver.Operator = (*Backend)(nil)
	_ driver.Checker  = (*Backend)(nil)
)

// Inspect implements [driver.Operator], with the label and the token of the holder. Only the kernel
// knows how many waiters there are.
//
// If the file is not locked, Inspect takes a shared lock on it for some microseconds. TryLock tolerates
// that; `flock --nonblock` in a shell script does not.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	st, _, err := b.look(ctx, name)
	return st, err
}

// look returns the state of a lock, and the record of its holder.
func (b *Backend) look(ctx context.Context, name string) (driver.State, record, error) {
	st := driver.State{Name: name, Waiters: -1}
	f, err := os.OpenFile(b.path(name), os.O_RDONLY|localfile.OpenFlags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return st, record{}, ctx.Err()
	}
	if err == nil {
		defer f.Close()
		err = localfile.Regular(f)
	}
	if err != nil {
		return st, record{}, unavailable(err)
	}
	var unreadable error
	r, err := again(ctx, func() (r record, err error) {
		busy := visit(f, localfile.Shared)
		if busy != nil && !errors.Is(busy, localfile.ErrBusy) {
			return r, busy
		}
		r, _, unreadable = read(f, name)
		left := r.left(time.Now())
		shared := busy == nil && r.Shared // but there may be no sharer
		if shared && left <= 0 {
			shared = errors.Is(visit(f, localfile.Exclusive), localfile.ErrBusy)
		}
		switch {
		case busy == nil && !shared && left <= 0:
			return record{}, nil // it was free, whatever it contains
		case r.Process == 0 && left <= 0, r.Shared != shared:
			return r, localfile.ErrBusy // the holder is about to write its record, or there is no holder
		}
		return r, nil
	})
	switch {
	case errors.Is(err, driver.ErrHeld) && unreadable != nil:
		return st, record{}, fmt.Errorf("it is held, but its holder is not readable: %w", unreadable)
	case errors.Is(err, driver.ErrHeld):
		r = record{} // of another holder
	case err != nil:
		return st, record{}, unavailable(err)
	case r == record{}:
		return st, r, ctx.Err()
	case r.Shared:
		st.Sharers = sharersOf(f)
	}
	st.Held, st.Holder, st.Label, st.Token = true, r.holder(), r.Label, r.Token
	if !r.Shared { // unknown for the first sharer
		st.Since = r.Since
	}
	if left := r.left(time.Now()); left > 0 {
		st.Remaining, st.KeptUntil = left, r.Kept
	}
	return st, r, ctx.Err()
}

// visit locks f for a moment, and blocks others meanwhile.
func visit(f *os.File, how localfile.How) error {
	err := localfile.Flock(f, how|localfile.NoWait)
	if err == nil {
		_ = localfile.Flock(f, localfile.Unlock)
	}
	return err
}

// sharersOf returns how many processes have locked f shared; 1 if the system does not show it. The
// system's table changes while it is read, so it is read until it says the same twice, a few times at
// most.
func sharersOf(f *os.File) int {
	info, err := f.Stat()
	n, last := 0, -1
	for tries := 0; err == nil && n != last && tries < 5; tries++ {
		n, last = 0, n
		all, _ := os.ReadFile("/proc/locks") // of Linux
		for line := range strings.Lines(string(all)) {
			// 1: FLOCK  ADVISORY  READ 708 fd:01:4194 0 EOF
			field := strings.Fields(line)
			if len(field) == 8 && field[1] == "FLOCK" && field[3] == "READ" && strings.HasSuffix(field[5], ":"+localfile.Inode(info)) {
				n++
			}
		}
	}
	return max(n, 1)
}

// List implements [driver.Operator] for names that are held. Only the kernel knows the waiters.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	return func(yield func(driver.State, error) bool) {
		entries, err := os.ReadDir(b.dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			yield(driver.State{}, unavailable(err))
			return
		}
		for _, e := range entries {
			if err := ctx.Err(); err != nil {
				yield(driver.State{}, err)
				return
			}
			name, ok := b.nameIn(e)
			if !ok || !strings.HasPrefix(name, prefix) {
				continue
			}
			st, err := b.Inspect(ctx, name)
			if err != nil {
				yield(driver.State{}, err)
				return
			}
			if st.Held && !yield(st, nil) {
				return
			}
		}
	}
}

// nameIn returns the name of the lock in file e; ok is false if e is not a lock file, or is gone.
// Anybody may have put a pipe or a huge file into the directory.
func (b *Backend) nameIn(e fs.DirEntry) (name string, ok bool) {
	if !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), suffix) {
		return "", false
	}
	f, err := os.OpenFile(filepath.Join(b.dir, e.Name()), os.O_RDONLY|localfile.OpenFlags, 0)
	if err != nil {
		return "", false
	}
	defer f.Close()
	content, err := contentOf(f)
	if err != nil {
		return "", false
	}
	_, quoted, _ := strings.Cut(string(content), "\nname ")
	name, err = strconv.Unquote(strings.TrimSuffix(quoted, "\n"))
	return name, err == nil && fileName(name) == e.Name()
}

// Break implements [driver.Operator]. It ends a lock that only a MinHold still keeps.
// It cannot break the lock of a living process, since the kernel keeps it: the error
// names the process, and matches [errors.ErrUnsupported].
func (b *Backend) Break(ctx context.Context, st driver.State) error {
	if st.Holder == "" {
		return nil // nobody
	}
	var token uint64
	if _, err := fmt.Sscanf(st.Holder, holderForm, &token); err != nil {
		return fmt.Errorf("%w: %q is no Holder of this backend", driver.ErrInvalid, st.Holder)
	}
	path := b.path(st.Name)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil // it was deleted: do not create a new one
	}
	f, err := again(ctx, func() (*os.File, error) { return b.tryLock(path, st.Name, localfile.Exclusive) })
	if err == nil {
		defer localfile.LetGo(f)
		r, content, err := read(f, st.Name)
		if err == nil && r.Token == token {
			err = write(f, st.Name, r.free(), content)
		}
		return unavailable(err)
	}
	if !errors.Is(err, driver.ErrHeld) {
		return unavailable(err)
	}
	now, r, err := b.look(ctx, st.Name)
	switch {
	case err != nil, now.Holder != st.Holder:
		return err
	case r.Process == 0:
		return fmt.Errorf("the kernel keeps the lock for a process that does not identify itself, such as flock(1): "+
			"end that process: %w", errors.ErrUnsupported)
	}
	return fmt.Errorf("the kernel keeps the lock for process %d (its own process ID; %q), and "+
		"cannot take it from a living process: end that process: %w", r.Process, r.Label, errors.ErrUnsupported)
}

// manyFiles is the number of lock files that Check does not report (R25).
const manyFiles = 10_000

// Check implements [driver.Checker].
func (b *Backend) Check(ctx context.Context) ([]driver.Finding, error) {
	f := driver.Finding{What: "lock directory " + b.dir}
	info, _, err := checkDir(b.dir)
	switch {
	case err != nil:
		f.Severity, f.Found = driver.SeverityProblem, err.Error()
		f.Advice = "locks held in it may not exclude newcomers: find out what has changed it"
	case info.Mode()&0o002 != 0:
		f.Severity, f.Found = driver.SeverityWarning, info.Mode().String()
		f.Advice = "every user can hold every lock forever, or delete its file: give it a group instead; " +
			"install -d -m 2770 -g GROUP /var/lib/locker, and file:///var/lib/locker for all of them"
	default:
		f.Found = info.Mode().String()
	}
	found := []driver.Finding{f}
	n, err := b.countFiles(ctx)
	if err == nil && n >= manyFiles {
		found = append(found, driver.Finding{Severity: driver.SeverityInfo, What: "lock files in " + b.dir,
			Found: strconv.Itoa(n), Advice: "each name that was ever used has one, which stays: while no " +
				"program uses the directory and no MinHold is running, find '" + b.dir + "' -maxdepth 1 -name '*.lock' -delete -o " +
				"-name '*.turn' -delete"})
	}
	return found, ctx.Err()
}

// countFiles counts the files of locks.
func (b *Backend) countFiles(ctx context.Context) (n int, err error) {
	dir, err := os.Open(b.dir)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	for err == nil && ctx.Err() == nil {
		var names []string
		names, err = dir.Readdirnames(1000)
		for _, name := range names {
			if strings.HasSuffix(name, suffix) || strings.HasSuffix(name, turnSuffix) {
				n++
			}
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}
