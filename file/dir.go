package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/golockers/locker/internal/localfile"
)

// DefaultDir returns the default directory for locks, and creates it if it is
// missing: .local/state/locker in the home directory of the user that runs the
// process.
//
// All processes of one user get the same directory, and nothing deletes files in it:
// an error is better than two processes that lock in two places. So the home
// directory comes from the user database and not from $HOME or $XDG_STATE_HOME, which
// differ between a shell, a cron job and a service. The directory is not in
// $XDG_RUNTIME_DIR, which is deleted at logout, nor in the cache or in /tmp, where
// cleaners delete files and other users may have created it before.
//
// The directory has to belong to the user, with mode 0700; otherwise it is refused.
// Processes of two users do NOT exclude each other there: see "Several users" in the
// package comment. In a default directory for all users, each of them could hold
// every lock for ever, or delete its file.
func DefaultDir() (string, error) {
	if !supported {
		return "", errUnsupported()
	}
	u, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("no default lock directory: the user's home is not known (%w): choose a directory", err)
	}
	if !filepath.IsAbs(u.HomeDir) {
		return "", fmt.Errorf("no default lock directory: user %s has no home: choose a directory", u.Username)
	}
	dir := filepath.Join(u.HomeDir, ".local", "state", "locker")
	if err := makePrivate(dir); err != nil {
		return "", fmt.Errorf("no default lock directory: %w; or choose another directory", err)
	}
	return dir, nil
}

// makePrivate creates dir if it is missing, and returns an error if others than this
// user have rights on it.
func makePrivate(dir string) error {
	if err := makeDir(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if uid, ok := owner(info); !ok || uid != os.Geteuid() {
		return fmt.Errorf("%s belongs to user ID %d, and this is %d: who owns it can take every lock away", dir, uid, os.Geteuid())
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is open to other users (mode %04o): make it private with chmod 700", dir, info.Mode().Perm())
	}
	return nil
}

// prepareDir creates dir if it is missing. It returns its file info and its absolute
// path, or an error that says why no locks can be kept in it.
func prepareDir(dir string) (fs.FileInfo, string, error) {
	if !supported {
		return nil, "", errUnsupported()
	}
	if dir == "" || strings.ContainsRune(dir, 0) {
		return nil, "", fmt.Errorf("lock directory %q: no directory can be called that", dir)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, "", err
	}
	if err := makeDir(abs, 0o700); err != nil {
		return nil, "", err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return nil, "", err
	}
	if err := checkLocal(abs); err != nil {
		return nil, "", err
	}
	return info, abs, checkWritable(abs)
}

// checkLocal returns an error if dir is on a file system where flock does not work as
// on a local disk.
func checkLocal(dir string) error {
	kind, err := localfile.RemoteKind(dir)
	if err == nil && kind != "" {
		err = fmt.Errorf("lock directory %s is on a file system of type %s, where file locks are not kept by this host alone: choose one on a local disk", dir, kind)
	}
	return err
}

// makeDir creates dir with this mode, and the directories above it with 0700, if they
// are missing.
func makeDir(dir string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return fmt.Errorf("cannot make lock directory %s: %w", dir, err)
	}
	switch err := os.Mkdir(dir, mode); {
	case err == nil:
		return os.Chmod(dir, mode) // whatever the umask
	case !errors.Is(err, fs.ErrExist):
		return fmt.Errorf("cannot make lock directory %s: %w", dir, err)
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("lock directory %s is not a directory", dir)
	}
	return err
}

func errUnsupported() error {
	return fmt.Errorf("no file locks to build on under %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
