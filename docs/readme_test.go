package docs_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

var block = regexp.MustCompile("(?s)```(sh|go)\n(.*?)```\n")

// blocksOf returns what stands in the blocks of a part of a page, with their languages. What is to be typed has no
// comments: at the prompt of a zsh, as macOS has it, they are arguments.
func blocksOf(t *testing.T, page, from, to string) (blocks [][2]string) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, rest, begins := strings.Cut(string(text), from)
	part, _, ends := strings.Cut(rest, to)
	require.True(t, begins && ends)
	for _, m := range block.FindAllStringSubmatch(part, -1) {
		require.False(t, m[1] == "sh" && strings.Contains(m[2], "#"), m[2])
		blocks = append(blocks, [2]string{m[1], m[2]})
	}
	return blocks
}

// tried is a version that nobody has: what is typed gets it from a module proxy, as it will get a release.
var tried = fmt.Sprintf("v0.0.1-docs.%d", time.Now().UnixNano())

// typing types what a page says in an empty directory, which knows of nothing here but a module proxy.
func typing(t *testing.T) (dir string, typed func(block string) string) {
	t.Helper()
	proxy := t.TempDir()
	modules := exec.CommandContext(t.Context(), "../scripts/modules", "proxy", proxy, tried)
	said, err := modules.CombinedOutput()
	require.NoError(t, err, "%s", said)
	env, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY").Output()
	require.NoError(t, err)
	cache, next, _ := strings.Cut(string(env), "\n")
	t.Cleanup(func() { // of ours, nothing stays in the module cache
		for _, in := range []string{"", "cache/download"} {
			_ = exec.CommandContext(context.Background(), "find", filepath.Join(cache, in, "github.com/golockers"), "(", "-name", "*@"+tried,
				"-o", "-name", tried+".*", ")", "-prune", "-exec", "rm", "-rf", "{}", "+").Run()
		}
	})
	proxies := "file://" + proxy + ",file://" + filepath.Join(cache, "cache", "download") + "," + strings.TrimSpace(next)
	dir = t.TempDir()
	return dir, func(block string) (said string) {
		for line := range strings.Lines(block) {
			cmd := exec.CommandContext(t.Context(), "sh", "-ec", line)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GOFLAGS=-v -modcacherw", "GOWORK=off", "GOSUMDB=off", "GOPROXY="+proxies)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			require.NoError(t, err, "%s\n%s%s", line, out, &stderr)
			said += string(out)
		}
		return said
	}
}

func TestProveTheFirstScreenOfTheReadme(t *testing.T) {
	lab.NeedProve(t) // it compiles the driver
	dir, typed := typing(t)
	server, said := lab.StartRedis(t), ""
	for _, block := range blocksOf(t, "../README.md", "\n## A lock on the Redis that you have\n", "\n## ") {
		if block[0] == "go" {
			require.Contains(t, block[1], `"localhost:6379"`)
			program := strings.Replace(block[1], "localhost:6379", server.Addr(), 1)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
			continue
		}
		said += typed(block[1])
	}
	assert.Equal(t, "sent\n<nil>\n", said)
}

// The first command works in a clone, with nothing installed.
func TestProveTheFirstCommandOfTheReadme(t *testing.T) {
	lab.NeedProve(t)
	line, rest, _ := strings.Cut(blocksOf(t, "../README.md", "## The command\n", "\n## ")[0][1], "\n")
	assert.Contains(t, rest, "\nmake test", "the last one")
	cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(line, "sleep 5", "true", 1))
	cmd.Dir, cmd.Env = "..", append(os.Environ(), "XDG_STATE_HOME="+t.TempDir(), "LOCKER_BACKEND=file://"+t.TempDir())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "only one of us at a time\n", string(out))
}
