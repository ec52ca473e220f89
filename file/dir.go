package file

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/golockers/locker/internal/localfile"
)

// supported are the systems on which this package has been tested.
const supported = runtime.GOOS == "linux" || runtime.GOOS == "darwin"

// DefaultDir returns the default directory for locks, and creates it if it is missing:
// .local/state/locker in the home directory of the user who runs the process.
//
// All processes of one user get the same directory, and nothing deletes files in it: an error is better
// than two processes that lock in two places. So the home directory comes from /etc/passwd (on macOS
// from its user database), not from $HOME or $XDG_STATE_HOME, which differ between a shell, a cron job
// and a service. The directory is not in $XDG_RUNTIME_DIR, the cache or /tmp, where files get deleted.
// A user without an entry, as in many containers or with an LDAP directory, has no default directory,
// however the program was built.
//
// A directory that is open to other users is refused. Processes of different users do NOT exclude each
// other with it: see "Several users" in the package comment.
func DefaultDir() (string, error) {
	if !supported {
		return "", errUnsupported()
	}
	home, err := homeOf(strconv.Itoa(os.Getuid()))
	if err != nil {
		return "", fmt.Errorf("no default lock directory: %w: make one with "+
			"`mkdir -m 700 -p ~/.local/state/locker`, and give all programs of this user its URL, "+
			"\"file://$HOME/.local/state/locker\"", err)
	}
	dir := filepath.Join(home, ".local", "state", "locker")
	if err := makePrivate(dir); err != nil {
		return "", fmt.Errorf("no default lock directory: %w; or choose another directory", err)
	}
	return dir, nil
}

// homeOf returns the home directory of a user. On Linux it does not ask package
// os/user, which reads $HOME for a user without an entry if the program was built
// without cgo (R27).
func homeOf(uid string) (string, error) {
	if runtime.GOOS == "darwin" {
		u, err := user.LookupId(uid)
		return cmp.Or(u, &user.User{}).HomeDir, err
	}
	entries, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return "", err
	}
	for entry := range strings.Lines(string(entries)) {
		if field := strings.Split(entry, ":"); len(field) == 7 && field[2] == uid &&
			filepath.IsAbs(field[5]) {
			return field[5], nil
		}
	}
	return "", fmt.Errorf("user ID %s has no entry in /etc/passwd with a home directory (LDAP and the like are "+
		"not asked)", uid)
}

// makePrivate creates dir if it is missing, and returns an error if other users have rights on it.
func makePrivate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot make lock directory %s: %w", dir, err)
	}
	info, err := os.Stat(dir)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = fmt.Errorf("%s is open to other users (mode %04o): make it private with chmod 700", dir,
			info.Mode().Perm())
	}
	return err
}

// checkDir returns the file info of dir and its absolute path, or an error that says why it cannot keep
// locks. It does not create dir, because a mistyped directory would exclude nobody (R27).
func checkDir(dir string) (fs.FileInfo, string, error) {
	if !supported {
		return nil, "", errUnsupported()
	}
	if dir == "" {
		return nil, "", errors.New("no lock directory was given")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, "", err
	}
	info, err := localfile.Dir(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", noDir(abs)
	}
	if err == nil {
		err = localfile.Writable(abs)
	}
	if err != nil {
		return nil, "", fmt.Errorf("cannot keep lock files in %s: %w", abs, err)
	}
	return info, abs, nil
}

func noDir(dir string) error {
	return fmt.Errorf("lock directory %s does not exist: create it, or check the spelling: all "+
		"programs must use the same directory: %w", dir, fs.ErrNotExist)
}

func errUnsupported() error {
	return fmt.Errorf("no usable file locks on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
