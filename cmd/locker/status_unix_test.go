//go:build unix

package main_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExitStatus(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o600))
	broken := filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(broken, []byte("no program\n"), 0o700))
	dir := t.TempDir()
	words := strings.Fields
	run := func(role string, args ...string) []string { return locked(nil, "a", role, args...) }
	for _, c := range []struct {
		what   string
		args   []string
		status int
		says   string // on stderr; "": nothing at all
	}{
		{"the command succeeds", run("exit", "0"), 0, ""},
		{"the command fails", run("exit", "7"), 7, ""},
		{"the command fails with the highest status", run("exit", "255"), 255, ""},
		{"the command is killed", run("die", "9"), 128 + 9, ""},
		{"the command dies of TERM", run("die", "15"), 128 + 15, ""},
		{"no such command", words("run a -- no-such-command"), 127, "no-such-command: command not found"},
		{"no such file", words("run a -- /no/such/file"), 127, "/no/such/file: command not found"},
		{"not executable", words("run a -- " + script), 126, "permission denied"},
		{"a directory", words("run a -- /"), 126, "/: cannot be executed"},
		{"no program", words("run a -- " + broken), 126, "exec format error"},
		{"no arguments", words("run"), 64, "NAME -- COMMAND"},
		{"no command", words("run a"), 64, "NAME -- COMMAND"},
		{"no dashes", words("run a true"), 64, "NAME -- COMMAND"},
		{"nothing after the dashes", words("run a --"), 64, "no COMMAND"},
		{"two names", words("run a b -- true"), 64, "NAME -- COMMAND"},
		{"an empty name", []string{"run", "", "--", "true"}, 64, "the name is empty"},
		{"a long name", []string{"run", strings.Repeat("x", 513), "--", "true"}, 64, "the limit is 512"},
		{"a name that is not UTF-8", []string{"run", "a\xff", "--", "true"}, 64, "UTF-8"},
		{"unknown flag", words("run --color a -- true"), 64, "unknown flag"},
		{"unknown command", words("walk"), 64, "unknown command"},
		{"a wait without a unit", words("run --wait 5 a -- true"), 64, "missing unit"},
		{"a TTL without a unit", words("run --ttl 30 a -- true"), 64, "--ttl"},
		{"a TTL of nothing", words("run --ttl 0s a -- true"), 64, "--ttl"},
		{"a TTL below zero", words("run --ttl=-1s a -- true"), 64, "--ttl"},
		{"no hold at all", words("run --max-hold 0s a -- true"), 64, "MaxHold"},
		{"a wait below zero", words("run --wait=-1s a -- true"), 64, "--wait"},
		{"no exit status", words("run -E 256 a -- true"), 64, "--conflict-exit-code"},
		{"try and wait", words("run --try --wait 1s a -- true"), 64, "not both"},
		{"no scheme", words("run -b localhost:6379 a -- true"), 64, "scheme"},
		{"no path", words("run -b file://locks a -- true"), 64, "locker backends lists the URLs"},
		{"unknown scheme", words("run -b http://localhost a -- true"), 64, "file, postgres"},
		{"a lock that nobody else would see", words("run -b memory:// a -- true"), 64, "no backend"},
		{"unknown parameter", words("run -b file:///tmp?color=red a -- true"), 64, "unknown parameter"},
		{"a line end behind the URL", []string{"list", "-b", "file://" + dir + "\r\n"}, 64, "a line end"},
		{"a directory that does not exist", words("run -b file://" + dir + "/typo a -- true"), 69, "does not exist"},
		{"wait in a directory that does not exist", words("wait -b file://" + dir + "/typo a"), 69, "does not exist"},
		{"inspect without a name", words("inspect"), 64, "requires at least 1 arg"},
		{"inspect with an empty name", []string{"inspect", ""}, 64, "the name is empty"},
		{"inspect with a bad URL", words("inspect -b redis: a"), 64, "scheme"},
		{"inspect a file in place of a directory", words("inspect -b file://" + script + " a"), 69, "not a directory"},
		{"no slots", words("run --slots 0 a -- true"), 64, "give 1 to 1000"},
		{"too many slots", words("run --slots 1001 a -- true"), 64, "give 1 to 1000"},
		{"slots that are kept", words("run --slots 2 --min-hold 1m a -- true"), 64, "needs --try"},
		{"slots that are shared", words("run --shared --slots 2 a -- true"), 64, "not both"},
		{"a long name of slots", words("run --slots 2 " + strings.Repeat("x", 510) + " -- true"), 64, "503"},
		{"kept for longer than held", words("run --min-hold 2h --max-hold 1h a -- true"), 64, "--min-hold"},
		{"no name", words("run -- -foo"), 64, "NAME -- COMMAND"},
		{"a name for a flag", words("run -foo -- true"), 64, "unknown shorthand"},
		{"a name behind dashes, and no more", words("run -- -foo --"), 64, "no COMMAND"},
		{"check of no URL", []string{"check", ""}, 64, "it is empty"},
		{"check of a service that is down", words("check redis://127.0.0.1:1"), 69, "connection refused"},
		{"help", words("run --help"), 0, ""},
		{"version", words("--version"), 0, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := do(t, []with{fileBackend(t)}, c.args...)
			assert.Equal(t, c.status, r.status, r.stderr)
			if c.says == "" {
				assert.Empty(t, r.stderr)
				return
			}
			assert.Contains(t, r.stderr, c.says)
			assert.Regexp(t, `\Alocker: [^\n]*\n\z`, r.stderr, "one line, and who says it")
			assert.Empty(t, r.stdout)
		})
	}
}

// Two hosts with the same line for cron, and no value in its variable, would
// otherwise both run the job: each with the files of its own.
func TestEmptyBackendIsNotALocalLock(t *testing.T) {
	dir := "file://" + t.TempDir()
	for _, c := range []struct{ env, flag, says string }{
		{dir, "--backend=", "--backend"}, {dir, "--backend= \t", "--backend"},
		{"", "--try", "unset LOCKER_BACKEND"}, {" ", "--try", "unset LOCKER_BACKEND"},
	} {
		r := do(t, urls(c.env), "run", c.flag, "a", "--", "echo", "ran")
		assert.Equal(t, 64, r.status, "%q: %s", c, r.stderr)
		assert.Empty(t, r.stdout, c)
		assert.Contains(t, r.stderr, c.says)
	}
	assert.Equal(t, 64, do(t, urls(""), "inspect", "a").status)
	r := do(t, urls(""), "run", "-b", dir, "a", "--", "echo", "ran")
	assert.Equal(t, result{0, "ran", ""}, r, "the flag wins, and the variable is not asked for")
}

func TestServiceOutOfReachIsNotHeld(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	for _, args := range [][]string{
		{"run", "--try", "a", "--", "true"},
		{"run", "-q", "--wait", "100ms", "a", "--", "true"},
		{"run", "-q", "--wait", "2s", "a", "--", "true"}, // whose last attempt is cut short
		{"run", "--ttl", "300ms", "a", "--", "true"},
		{"inspect", "a"},
	} {
		r := do(t, []with{withEnv("LOCKER_BACKEND=redis://user:hush@" + addr)}, args...)
		assert.Equal(t, 69, r.status, "%v: %s", args, r.stderr)
		assert.Regexp(t, `\Alocker: [^\n]*`+addr+`[^\n]*: connection refused\n\z`, r.stderr, args)
		assert.NotContains(t, r.stderr, "hush", "a password")
		assert.Empty(t, r.stdout)
	}
}
