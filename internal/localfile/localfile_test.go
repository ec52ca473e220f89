//go:build linux || darwin || freebsd

package localfile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/golockers/locker/internal/localfile"
)

// opened opens one file so many times: flock tells these from each other.
func opened(t *testing.T, times int) []*os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	var all []*os.File
	for range times {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|localfile.OpenFlags, 0o600)
		require.NoError(t, err)
		t.Cleanup(func() { _ = f.Close() })
		all = append(all, f)
	}
	return all
}

// A process that is being started has a copy of every descriptor for a moment.
func TestLetGoFreesAFileThatHasACopy(t *testing.T) {
	f := opened(t, 2)
	require.NoError(t, localfile.Flock(f[0], localfile.Exclusive))
	fd, err := unix.Dup(int(f[0].Fd()))
	require.NoError(t, err)
	defer unix.Close(fd)
	localfile.LetGo(f[0])
	assert.NoError(t, localfile.Flock(f[1], localfile.Exclusive|localfile.NoWait))
	assert.ErrorIs(t, f[0].Close(), fs.ErrClosed)
}

func TestClosedFileIsAnErrorAndNotBusy(t *testing.T) {
	f := opened(t, 1)[0]
	require.NoError(t, f.Close())
	for _, how := range []localfile.How{localfile.Exclusive, localfile.Exclusive | localfile.NoWait,
		localfile.Unlock} {
		err := localfile.Flock(f, how)
		assert.Error(t, err)
		assert.NotErrorIs(t, err, localfile.ErrBusy)
	}
}

// Which this package says for systems that it cannot ask.
func TestNumbersAreThoseOfFlock(t *testing.T) {
	assert.Equal(t, [...]localfile.How{unix.LOCK_SH, unix.LOCK_EX, unix.LOCK_NB, unix.LOCK_UN},
		[...]localfile.How{localfile.Shared, localfile.Exclusive, localfile.NoWait, localfile.Unlock})
}
