//go:build unix

package main_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNameThatBeginsWithADash(t *testing.T) {
	backend := []with{fileBackend(t)}
	show := []string{"sh", "-c", `echo "$LOCKER_NAME $*"`, "sh"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{append([]string{"run", "--", "-foo", "--"}, show...), "-foo "},
		{append([]string{"run", "--try", "--", "--wait", "--"}, append(show, "-x")...), "--wait -x"},
		{append([]string{"run", "--", "--", "--"}, show...), "-- "},
		{append([]string{"run", "--", "a", "--"}, show...), "a "},
		{append([]string{"run", "a", "--"}, append(show, "--", "b")...), "a -- b"},
		{append([]string{"run", "--", "-a", "--"}, append(show, "--", "b")...), "-a -- b"},
	} {
		assert.Equal(t, result{0, c.want, ""}, do(t, backend, c.args...), "%q", c.args)
	}
	for _, args := range [][]string{
		{"run", "-foo", "--", "true"}, {"run", "--", "-foo"}, {"run", "--", "-foo", "true"},
		{"run", "--", "-foo", "--"}, {"run", "--"}, {"run", "--", "--"},
	} {
		r := do(t, backend, args...)
		assert.Equal(t, 64, r.status, "%q: %s", args, r.stderr)
		assert.Regexp(t, `\Alocker: [^\n]*\n\z`, r.stderr)
	}
}

func TestServiceThatDoesNotAnswerIsWaitedForNoLongerThanTheLock(t *testing.T) {
	t.Parallel()
	// It takes connections, and says nothing.
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	// Less than they take without a --wait.
	for scheme, limit := range map[string]time.Duration{
		"redis": 2800 * time.Millisecond, "etcd": 4500 * time.Millisecond,
		"zookeeper": 4500 * time.Millisecond,
	} {
		t.Run(scheme, func(t *testing.T) {
			began := time.Now()
			r := do(t, nil, "run", "-b", scheme+"://"+l.Addr().String(), "--wait", "500ms", "a", "--",
				"echo", "ran")
			assert.Less(t, time.Since(began), limit)
			assert.Equal(t, 69, r.status, r.stderr)
			assert.Contains(t, r.stderr, "the lock service is unavailable")
			assert.Regexp(t, `\A(locker: [^\n]*\n)+\z`, r.stderr)
			assert.Empty(t, r.stdout)
		})
	}
}

func TestUserWithoutAHomeIsToldWhatToDo(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	require.NoError(t, os.Chmod(filepath.Dir(binary), 0o755))
	nobody := func(c *exec.Cmd) {
		c.Dir = "/"
		c.Env = []string{"PATH=" + os.Getenv("PATH")}
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 64321, Gid: 64321}}
	}
	r := do(t, []with{nobody}, "run", "a", "--", "true")
	assert.Equal(t, 69, r.status)
	assert.Contains(t, r.stderr, "--backend file:///DIR")
}
