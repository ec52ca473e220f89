//go:build unix

package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/golockers/locker/internal/lab"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestInspect(t *testing.T) {
	for service, remaining := range map[string]string{"file": ``, "redis": `"remaining_ms":[12]\d{4},`} {
		t.Run(service, func(t *testing.T) {
			backend := urls(services[service](t))
			play(t, backend, prints(`^"a": free$`, "inspect a"))
			p := start(t, backend, "run", "--ttl", "20s", "a", "--", "sh", "-c",
				"echo token $LOCKER_TOKEN; exec sleep 60")
			token, pid := p.expect("token"), strconv.Itoa(p.cmd.Process.Pid)
			const none = `(,"waiters":0)?(,"since":"[^"]*")?\}`
			play(t, backend,
				prints(`^"a": held by sh@.*\[`+pid+`\].*, token `+token+`$`, "inspect a"),
				prints(`\A\{"name":"a","held":true,"label":"sh@[^"]*\[`+pid+`\]",`+remaining+`"token":`+token+none+
					`\n\{"name":"b","held":false`+none+`\z`, "inspect --json a b"))
			p.signal(syscall.SIGTERM)
			p.wait()
			play(t, backend, prints(`"held":false`, "inspect --json a"))
		})
	}
}

func TestListAndBreak(t *testing.T) {
	backend := []with{startService(t).direct()}
	assert.Equal(t, result{}, do(t, backend, "list"))
	assert.Equal(t, result{0, `"b": free`, ""}, do(t, backend, "break", "--yes", "b"))

	for _, name := range []string{"a/2", "a/1", "b"} {
		start(t, backend, locked([]string{"--ttl", "20s"}, name, "listen")...).expect("group")
	}
	const held = `"held":true,[^\n]*\}`
	play(t, backend,
		// Sorted, and nothing but the prefix.
		prints(`\ANAME +HOLDER +SINCE +EXPIRES +TOKEN +WAITING\na/1 +\S+@\S+ +[-\d]+ [:\d]+ +in \d+s +\d+ +-\na/2 [^\n]*\z`,
			"list a/"),
		prints(`\A\{"name":"a/1",`+held+`\n\{"name":"a/2",`+held+`\n\{"name":"b",`+held+`\z`, "list --json"),
		fails(64, "--yes", "break b"), // nobody is there to be asked
		prints(`^broken, "b": held by .*, token \d+$`, "break --yes b"),
		prints(`^"b": free$`, "inspect b"))
}

// Of two machines with the same line for cron one runs the job, however short
// it is and however far their clocks are apart.
func TestMinHoldKeepsTheLockWhenTheJobIsOver(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(broken, []byte("no program\n"), 0o700))
	for _, service := range []string{"file", "redis", "etcd"} {
		t.Run(service, func(t *testing.T) {
			hourly := "run --try -q --min-hold 1h a -- echo ran"
			play(t, urls(services[service](t)), prints("ran", hourly), fails(75, "", hourly),
				fails(75, ", kept by --min-hold until 20", "run --try a -- echo ran"),
				prints(`, kept by --min-hold until [-: \d]+, token \d+$`, "inspect a"),
				prints("broken", "break --yes a"), prints("ran", hourly), // an operator can let the next one in
				// A command that was never run kept nobody from doing the work.
				step{[]string{"run", "--try", "--min-hold", "1h", "b", "--", broken}, 126, "", "cannot be executed"},
				prints("ran", "run --try b -- echo ran"))
		})
	}
}

// Where no lock can be had, the findings say why: that is when they are needed.
func TestCheckSaysAllWhereNoLockCanBeHad(t *testing.T) {
	master := lab.StartRedis(t)
	replica := lab.StartRedis(t, lab.ReplicaOf(master.Addr()))
	// has just been started: the restart guard keeps it out
	redlock := "redlock://" + lab.StartRedis(t).Addr()
	// Two clusters of etcd are not one: that is no outage.
	a, b := lab.StartEtcd(t, 1).Nodes[0].Addr(), lab.StartEtcd(t, 1).Nodes[0].Addr()
	for url, want := range map[string]string{
		"redis://" + replica.Addr(): `(?s)^problem +lock, renew and unlock: .*(maxmemory-policy.*slave|slave.*maxmemory-policy)`,
		redlock:                     `(?s)^problem +lock, renew and unlock: .*(maxmemory-policy.*restart|restart.*maxmemory-policy)`,
		"etcd://" + a + "," + b:     `^problem +opening: .*(` + a + `.*belongs to cluster|belongs to cluster.*` + a + `)`,
	} {
		r := do(t, nil, "check", url)
		assert.Equal(t, 2, r.status, "%s: %s%s", url, r.stdout, r.stderr)
		assert.Regexp(t, "(?m)"+want, r.stdout)
		assert.Empty(t, r.stderr)
	}
}

// Whoever checks each minute would fill a service with the names of the checks.
func TestCheckLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	redis, pg := lab.StartRedis(t, lab.WithConfig("appendonly", "yes")), lab.StartPostgres(t)
	node := lab.StartRedis(t, lab.WithConfig("appendonly", "yes"))
	for _, url := range []string{"file://" + dir, "redis://" + redis.Addr(),
		"redlock://" + node.Addr() + "?fencing=on&ttl=500ms&restart_guard=off", pg.URL(pg.Addr()),
		"file://" + dir + " redis://" + redis.Addr()} {
		r := do(t, nil, "check", url)
		assert.NotContains(t, r.stderr, "locker:", url)
		assert.Contains(t, r.stdout, "lock, renew and unlock: took", r.stderr)
		if strings.HasPrefix(url, "redis") {
			assert.Contains(t, r.stdout, "appendfsync of "+redis.Addr()+": everysec")
			assert.Equal(t, 1, r.status, r.stdout)
		}
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.Equal(t, []any{"locker:2:tokens"}, redis.MustDo(t, "KEYS", "*"), "the one counter of the server")
	assert.Empty(t, node.MustDo(t, "KEYS", "*{*"))
	assert.Equal(t, "0", pg.Query(t, "SELECT count(*) FROM locker_locks WHERE name <> ''"))
}

// urls sets the variable that names the service.
func urls(text string) []with {
	return []with{func(c *exec.Cmd) { c.Env = append(c.Env, "LOCKER_BACKEND="+text) }}
}

// Two URLs in one variable, as in the middle of a move.
func TestTwoServices(t *testing.T) {
	old, young := t.TempDir(), t.TempDir()
	first, second := "file://"+old, "file://"+young
	held := `(?m)^job +\S+ \[file file\] +[-: \d]+ +- +\d+ +-$` // each service lists its own, and the label says of both
	play(t, urls(first+"\n "+second),
		prints(held, "run job -- "+binary+" list --backend "+first),
		prints(held, "run job -- "+binary+" list --backend "+second),
		fails(69, "use the URLs of its two services", "list"),
		fails(69, "use the URLs of its two services", "inspect job"),
		fails(64, "file+file has no shared locks", "run --shared job -- true"),
		fails(75, "nothing is reentrant", "run job -- "+binary+" run job -- echo inner ran"),
		fails(75, "nothing is reentrant", "run job -- "+binary+" run job --backend "+first+" -- echo inner ran"),
		fails(69, "use the URLs of its two services", "run job -- "+binary+" break --yes job"),
		prints(`(?m)^ok +lock, renew and unlock`, "check"))
	play(t, urls("file:///a file:///b file:///c"), fails(64, "it has 3 parts", "list"))
}

func TestShared(t *testing.T) {
	backend := []with{startService(t).direct()}
	holding(t, backend, "--shared", "--ttl", "20s")
	holding(t, backend, "--shared", "--ttl", "20s")
	play(t, backend,
		fails(75, `"a" is held by 2 sharers: `, "run --try a -- true"), // a writer
		prints(`(?m)^a +2 sharers: \S+@\S+, \S+@\S+ +\S+ \S+ +in \d+s +\d+ +-$`, "list"),
		prints(`"token":\d+(,"waiters":0)?,"sharers":2,"sharing":\["[^"]*","[^"]*"\],"since":"[^"]*"\}$`, "inspect --json a"))
	token := do(t, backend, "run", "--shared", "a", "--", "sh", "-c", "echo $LOCKER_TOKEN").stdout
	assert.Contains(t, do(t, backend, "inspect", "a").stdout, "token "+token, "that of all who share it")

	play(t, backend,
		prints(`^broken, "a": held by 2 sharers`, "break --yes a"),
		prints("alone", "run --try a -- echo alone"),
		fails(64, "redlock has no shared locks",
			"run --shared -b redlock://"+startService(t).Addr()+"?restart_guard=off a -- true"))
}
