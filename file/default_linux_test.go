package file_test

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Two processes of one user would lock in two places if their default directory came
// from $HOME, which package os/user reads for a user without an entry in /etc/passwd if
// the program was built without cgo.
func TestDefaultDirDependsOnNeitherHomeNorTheBuild(t *testing.T) {
	needRoot(t)
	const stranger = 54321 // has no entry
	if u, err := user.LookupId("54321"); err == nil {
		t.Skip("the user ID of the test is in use, by ", u.Username)
	}
	dir := publicDir(t, 0o755)
	for _, cgo := range []string{"0", "1"} {
		program := filepath.Join(dir, "cgo"+cgo)
		build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./testdata/defaultdir")
		build.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
		said := func(uid uint32) (all []string) {
			for range 2 {
				home := publicDir(t, 0o755)
				require.NoError(t, os.Chown(home, int(uid), -1))
				cmd := exec.CommandContext(t.Context(), program)
				cmd.Env = []string{"HOME=" + home, "USER=somebody", "XDG_STATE_HOME=" + home}
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
				out, err := cmd.CombinedOutput()
				require.NoError(t, err)
				all = append(all, strings.TrimSpace(string(out)))
			}
			return all
		}
		refused := said(stranger)
		assert.Equal(t, refused[0], refused[1])
		assert.Contains(t, refused[0], "user ID 54321 has no entry in /etc/passwd")
		assert.Contains(t, refused[0], "mkdir -m 700 -p ~/.local/state/locker")
		known := said(65534) // nobody: its home is no directory of its own
		assert.Equal(t, known[0], known[1], "cgo %s", cgo)
		assert.Contains(t, known[0], ".local/state/locker", "cgo %s", cgo)
	}
}
