//go:build unix

package main_test

import (
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
	play(t, []with{fileBackend(t)},
		prints(``, "run a -- true"),
		fails(7, "", "run a -- sh -c", "exit 7"),
		fails(255, "", "run a -- sh -c", "exit 255"),
		fails(128+9, "", "run a -- sh -c", "kill -9 $$"),
		fails(128+15, "", "run a -- sh -c", "kill $$"),
		// It leads its process group, in which neither locker nor the guard is.
		step{[]string{"run", "a", "--", "sh", "-c", `trap "exit 9" TERM; kill -- -$$; exit 8`}, 9, ``, `\A\z`},
		fails(127, "no-such-command: command not found", "run a -- no-such-command"),
		fails(127, "/no/such/file: command not found", "run a -- /no/such/file"),
		fails(126, "permission denied", "run a -- "+script),
		fails(126, "/: cannot be executed", "run a -- /"),
		fails(126, "exec format error", "run a -- "+broken),
		fails(75, "nothing is reentrant", "run a -- "+binary+" run a -- echo inner ran"), // it would wait for itself
		fails(75, "nothing is reentrant", "run a -- "+binary+" run b -- "+binary+" run a -- echo inner ran"),
		fails(64, "--outlive", "run --outlive -b redis://"+startService(t).Addr()+" a -- true"),
		fails(64, "NAME -- COMMAND", "run"),
		fails(64, "NAME -- COMMAND", "run a"),
		fails(64, "-- is missing", "run a true"),
		fails(64, "-- is missing", "run a tar -czf x.tgz"),
		fails(64, "-- is missing", "run a grep -E x"),
		fails(64, "-- is missing", "run a df -h"),
		fails(64, "-- is missing", "run --try a tar --help"),
		fails(64, "unknown shorthand flag: 'x'", "run -x a -- true"),
		fails(64, "no COMMAND", "run a --"),
		fails(64, "NAME -- COMMAND", "run a b -- true"),
		fails(64, "the name is empty", "run", "", "--", "true"),
		fails(64, "the limit is 512", "run", strings.Repeat("x", 513), "--", "true"),
		fails(64, "UTF-8", "run", "a\xff", "--", "true"),
		fails(64, "did you mean inspect?", "inspekt a"),
		fails(64, "did you mean --min-hold?", "run --minhold 5s a -- true"),
		fails(64, "unknown flag", "run --color a -- true"),
		fails(64, "unknown command", "walk"),
		fails(64, "did you mean redis?", "list -b redsi://host"),
		fails(64, "did you mean fencing?", "run --require network,fenceing a -- true"),
		fails(64, "--require network: file does not promise that processes on different", "run --require fencing,network a -- true"),
		fails(64, "write a duration such as 500ms", "run --wait 5 a -- true"),
		fails(64, "--ttl", "run --ttl 30 a -- true"),
		fails(64, "--ttl", "run --ttl 0s a -- true"),
		fails(64, "--ttl", "run --ttl=-1s a -- true"),
		fails(64, "--ttl", "run --ttl 1d-2h a -- true"),
		fails(64, "--ttl", "run --ttl 70000d a -- true"),
		fails(64, "--max-hold: give a positive", "run --max-hold 0s a -- true"),
		fails(64, "--max-hold: give a positive", "run --max-hold=-1s a -- true"),
		fails(64, "--min-hold: give a positive", "run --min-hold=-1s a -- true"),
		fails(64, "--require: it is empty", "run --require= a -- true"),
		fails(64, "--wait", "run --wait=-1s a -- true"),
		fails(64, "--conflict-exit-code", "run -E 256 a -- true"),
		fails(64, "not both", "run --try --wait 1s a -- true"),
		fails(64, "scheme", "run -b localhost:6379 a -- true"),
		fails(64, "locker backends lists the URLs", "run -b file://locks a -- true"),
		fails(64, "begin with http://", "run -b http://localhost a -- true"),
		fails(64, "begin with memory://", "run -b memory:// a -- true"), // a lock that nobody else would see
		fails(64, "import cas/nats", "run -b nats://host/locks a -- true"),
		fails(64, "unknown parameter", "run -b file:///tmp?color=red a -- true"),
		fails(64, "a line end", "list -b", "file://"+dir+"\r\n"),
		fails(69, "does not exist", "run -b file://"+dir+"/typo a -- true"),
		fails(64, "an argument is missing: type locker inspect", "inspect"),
		fails(64, `"b" is an argument too many: type locker list`, "list", "a", "b"),
		fails(64, "the name is empty", "inspect", ""),
		// What no service takes is refused at once, also if none answers.
		fails(64, "the name is empty", "run -b redis://127.0.0.1:1", "", "--", "true"),
		fails(64, "503", "run -b redis://127.0.0.1:1 --slots 2 "+strings.Repeat("x", 510)+" -- true"),
		fails(64, "redis://127.0.0.1:1: --ttl is 500d: give one from", "run --ttl 500d -b redis://127.0.0.1:1 a -- true"),
		fails(64, "UTF-8", "inspect -b redis://127.0.0.1:1", "b", "a\xff"),
		fails(64, "the name is empty", "break -b redis://127.0.0.1:1", ""),
		fails(64, "more than zero", "inspect --timeout 0s a"),
		fails(64, "more than zero", "inspect --timeout=-1s a"),
		fails(64, "scheme", "inspect -b redis: a"),
		fails(69, "not a directory", "inspect -b file://"+script+" a"),
		fails(64, "give 1 to 1000", "run --slots 0 a -- true"),
		fails(64, "give 1 to 1000", "run --slots 1001 a -- true"),
		fails(64, "needs --try", "run --slots 2 --min-hold 1m a -- true"),
		fails(64, "not both", "run --shared --slots 2 a -- true"),
		fails(64, "503", "run --slots 2 "+strings.Repeat("x", 510)+" -- true"),
		fails(64, "--min-hold", "run --min-hold 2h --max-hold 1h a -- true"),
		fails(64, "NAME -- COMMAND", "run -- -foo"),
		fails(64, "unknown shorthand", "run -foo -- true"),
		fails(64, "no COMMAND", "run -- -foo --"),
		fails(64, "it is empty", "check", ""),
		fails(69, "connection refused", "check redis://127.0.0.1:1"),
		prints(``, "run --require fencing --wait 1d --max-hold 30d a -- true"),
		prints(``, "run --help"),
		prints(``, "--version"),
	)
}

// Two hosts with the same line for cron, and no value in its variable, would
// otherwise both run the job: each with the files of its own.
func TestEmptyBackendIsNotALocalLock(t *testing.T) {
	dir := "file://" + t.TempDir()
	play(t, urls(dir),
		fails(64, "--backend", "run --backend= a -- echo ran"),
		fails(64, "--backend", "run", "--backend= \t", "a", "--", "echo", "ran"))
	play(t, urls(" "), fails(64, "unset LOCKER_BACKEND", "run a -- echo ran"))
	play(t, urls(""),
		fails(64, "unset LOCKER_BACKEND", "run a -- echo ran"),
		fails(64, "unset LOCKER_BACKEND", "inspect a"),
		prints("ran", "run -b "+dir+" a -- echo ran")) // the flag wins, and the variable is not asked for
}

func TestServiceOutOfReachIsNotHeld(t *testing.T) {
	t.Parallel()
	const addr = "127.0.0.1:1" // of a port that nobody is given
	for _, line := range []string{
		"run --try a -- true",
		"run -q --wait 100ms a -- true",
		"run -q --wait 2s a -- true", // whose last attempt is cut short
		"run --ttl 300ms a -- true",
		"inspect a",
	} {
		r := do(t, urls("redis://user:hush@"+addr), strings.Fields(line)...)
		assert.Equal(t, 69, r.status, "%v: %s", line, r.stderr)
		assert.Regexp(t, `\Alocker: [^\n]*`+addr+`[^\n]*: connection refused\n\z`, r.stderr, line)
		assert.NotContains(t, r.stderr, "hush", "a password")
		assert.Empty(t, r.stdout)
	}
}
