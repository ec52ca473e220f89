package file_test

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Two processes of one user would lock in two places if their default directory came
// from $HOME, which package os/user reads for a user without an entry in /etc/passwd if
// the program was built without cgo.
func TestDefaultDirDoesNotDependOnHome(t *testing.T) {
	needRoot(t)
	const stranger = 54321 // has no entry
	if u, err := user.LookupId("54321"); err == nil {
		t.Skip("the user ID of the test is in use, by ", u.Username)
	}
	program := filepath.Join(publicDir(t, 0o755), "program")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./testdata/defaultdir")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for uid, want := range map[uint32]string{
		stranger: "user ID 54321 has no entry in /etc/passwd",
		65534:    ".local/state/locker", // nobody
	} {
		home := publicDir(t, 0o755)
		require.NoError(t, os.Chown(home, int(uid), -1))
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = []string{"HOME=" + home, "USER=somebody", "XDG_STATE_HOME=" + home}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err)
		assert.Contains(t, string(out), want)
		assert.NotContains(t, string(out), home)
	}
}
