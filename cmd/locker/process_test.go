package main_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for what has to come. It is much longer
// than anything takes: a test that needs it has failed.
const patience = 20 * time.Second

// process is a locker, run as a user would.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr string // the file with it
	lines  chan string
	ended  chan struct{}

	mu  sync.Mutex
	all []string // of stdout
}

// with changes a command before it is started.
type with func(*exec.Cmd)

// withEnv sets an environment variable, given as NAME=VALUE.
func withEnv(v string) with { return func(c *exec.Cmd) { c.Env = append(c.Env, v) } }

// fileBackend is a backend of files that belong to this test.
func fileBackend(t *testing.T) with {
	return withEnv("LOCKER_BACKEND=file://" + filepath.ToSlash(t.TempDir()))
}

// environ is the environment of the test without what would change locker.
func environ() (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "LOCKER_") {
			env = append(env, v)
		}
	}
	// The race detector lets a process that ends sleep for a second.
	return append(env, "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
}

// start starts locker with these arguments.
func start(t *testing.T, setup []with, args ...string) *process {
	t.Helper()
	return startCommand(t, setup, binary, args...)
}

// startCommand starts any command, and reads its stdout by lines.
func startCommand(t *testing.T, setup []with, name string, args ...string) *process {
	t.Helper()
	p := &process{
		t: t, cmd: exec.CommandContext(context.Background(), name, args...),
		stderr: filepath.Join(t.TempDir(), "stderr"),
		lines:  make(chan string, 1000), ended: make(chan struct{}),
	}
	stderr, err := os.Create(p.stderr)
	require.NoError(t, err)
	defer stderr.Close()
	stdout, theirs, err := os.Pipe()
	require.NoError(t, err)
	p.cmd.Env = environ()
	p.cmd.Stdout, p.cmd.Stderr = theirs, stderr
	for _, change := range setup {
		change(p.cmd)
	}
	err = p.cmd.Start()
	_ = theirs.Close()
	require.NoError(t, err)
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	go p.read(stdout)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("%v\nstdout: %q\nstderr:\n%s", p.cmd.Args, p.stdout(), p.said())
		}
		_ = stdout.Close()
	})
	return p
}

func (p *process) read(stdout *os.File) {
	defer close(p.lines)
	s := bufio.NewScanner(stdout)
	for s.Scan() {
		p.mu.Lock()
		p.all = append(p.all, s.Text())
		p.mu.Unlock()
		p.lines <- s.Text()
	}
}

// stdout is what was written to it so far.
func (p *process) stdout() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.all...)
}

// said is what was written to stderr so far.
func (p *process) said() string {
	b, err := os.ReadFile(p.stderr)
	require.NoError(p.t, err)
	return string(b)
}

// complaints is what was said but what a wait is for.
func (p *process) complaints() string {
	return regexp.MustCompile(`(?m)^locker: waiting for .*\n`).ReplaceAllString(p.said(), "")
}

// expect waits for a line of stdout that begins with prefix, and returns the rest of it.
func (p *process) expect(prefix string) string {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case l, ok := <-p.lines:
			if !ok {
				require.FailNow(p.t, "stdout ended", "without a line %q; stderr: %s", prefix, p.said())
			}
			if rest, ok := strings.CutPrefix(l, prefix); ok {
				return strings.TrimSpace(rest)
			}
		case <-timeout:
			require.FailNow(p.t, "no such line on stdout", "%q; stderr: %s", prefix, p.said())
		}
	}
}

// expectSaid waits until stderr has text in it.
func (p *process) expectSaid(text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Contains(p.said(), text) }, patience,
		2*time.Millisecond,
		"stderr should have %q", text)
}

// wait waits for the end and returns the exit status, -1 if a signal ended it.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		require.FailNow(p.t, "locker does not end", "stderr: %s", p.said())
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// signal sends a signal to locker alone.
func (p *process) signal(sig os.Signal) {
	p.t.Helper()
	err := p.cmd.Process.Signal(sig)
	if !errors.Is(err, os.ErrProcessDone) {
		require.NoError(p.t, err)
	}
}

// result is what a locker that has ended leaves to look at.
type result struct {
	status         int
	stdout, stderr string
}

// do runs locker to its end.
func do(t *testing.T, setup []with, args ...string) result {
	t.Helper()
	p := start(t, setup, args...)
	status := p.wait()
	timeout := time.After(patience)
	for {
		select {
		case _, ok := <-p.lines:
			if ok {
				continue
			}
			return result{status, strings.Join(p.stdout(), "\n"), p.said()}
		case <-timeout:
			require.FailNow(t, "somebody keeps stdout open")
		}
	}
}

// step is a run of locker to its end, and what is seen of it.
type step struct {
	args           []string
	status         int
	stdout, stderr string // regular expressions
}

// prints is a step that does as it is told: the words of line, and further arguments.
func prints(stdout, line string, more ...string) step {
	return step{append(strings.Fields(line), more...), 0, stdout, `\A\z`}
}

// fails is a step that says why on one line, or says nothing, and writes no answer.
func fails(status int, says, line string, more ...string) step {
	if says != "" {
		says = `\Alocker: [^\n]*` + regexp.QuoteMeta(says) + `[^\n]*\n\z`
	} else {
		says = `\A\z`
	}
	return step{append(strings.Fields(line), more...), status, `\A\z`, says}
}

// play does one step after the other.
func play(t *testing.T, setup []with, steps ...step) {
	t.Helper()
	for _, s := range steps {
		r := do(t, setup, s.args...)
		assert.Equal(t, s.status, r.status, "%q: %s", s.args, r.stderr)
		assert.Regexp(t, s.stdout, r.stdout, "%q", s.args)
		assert.Regexp(t, s.stderr, r.stderr, "%q", s.args)
	}
}
