package compare

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/compare/internal/check"
	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/lab"
)

// Clients that check certificates go through proxies, too: for the name in the URL. Where the driver
// takes no other name than that of whom it calls, they go past the proxies, and it is said what cannot
// be tried.
func TestProveStagingWithTLS(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	for _, tool := range []string{lab.ToolRedis, lab.ToolEtcd, lab.ToolZooJar, "postgres"} {
		lab.Need(t, tool)
	}
	certs := lab.NewCerts(t, "localhost")
	named := func(addr string) string {
		_, port, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		return "localhost:" + port
	}
	ca := "ca=" + url.QueryEscape(certs.CAFile)
	redis := func() string { return named(lab.StartRedis(t, lab.WithTLS(certs)).Addr()) }
	pg := lab.StartPostgres(t, lab.WithTLS(certs))
	all := sideBySide{t: t}
	defer all.all.Wait()
	for _, u := range []string{
		"rediss://" + redis() + "?" + ca,
		"redlocks://" + redis() + "," + redis() + "," + redis() + "?restart_guard=off&" + ca,
		"etcds://" + named(lab.StartEtcd(t, 1, lab.WithTLS(certs)).Nodes[0].Addr()) + "?" + ca,
		"zookeepers://" + named(lab.StartZooKeeper(t, lab.WithTLS(certs)).TLSAddr()) + "?ttl=2s&" + ca,
		pg.URL(named(pg.Addr()), "sslmode=verify-full", "sslrootcert="+url.QueryEscape(certs.CAFile)),
	} {
		scheme, _, _ := strings.Cut(u, "://")
		all.run(scheme, func(t *testing.T) {
			report := compareOne(t, plan{urls: []string{u}, only: []string{"healthy", "holder-cut-off"}})
			require.Empty(t, report.Run.Services[0].Missing)
			isWhole(t, report)
			assert.Equal(t, history.Held, cell(t, report, check.Exclusion, "").Verdict)
			c := cell(t, report, check.Exclusion, "holder-cut-off")
			if scheme == "postgres" {
				assert.Equal(t, history.NotTried, c.Verdict)
				assert.Contains(t, c.Reason, "cannot use proxies")
				return
			}
			assert.Equal(t, history.Held, c.Verdict, "%+v", c)
		})
	}
}

// On a machine without any server, the file backend is compared, and the package that has the rest is
// named.
func TestWithoutServers(t *testing.T) {
	t.Setenv(lab.RequireEnv, "")
	for _, tool := range []string{lab.ToolRedis, lab.ToolEtcd, lab.ToolZooJar, lab.ToolJava, "postgres"} {
		t.Setenv(lab.ToolEnv(tool), "-")
	}
	status, out, errs := typed("--out", filepath.Join(t.TempDir(), "run"), "--only", "healthy")
	assert.Equal(t, ExitHeld, status, out+errs)
	assert.Regexp(t, `(?m)^exclusion: healthy +held · \d+$`, out)
	for service, pkg := range map[string]string{"redis": "redis-server", "redlock": "redis-server",
		"etcd": "etcd-server", "zookeeper": "zookeeper", "postgres": "postgresql"} {
		assert.Regexp(t, service+`: \S+ is not installed \(Debian: apt install `+pkg, out)
	}
}

// program is locker compare as a process of its own.
type program struct {
	*exec.Cmd
	out, errs strings.Builder
	dir       string
}

func startProgram(t *testing.T, shell string, args ...string) *program {
	t.Helper()
	p := &program{dir: filepath.Join(t.TempDir(), "run")}
	p.Cmd = exec.CommandContext(t.Context(), "sh",
		append([]string{"-c", shell + ` exec "$0" "$@"`, os.Args[0], "--for=0s", "--out", p.dir}, args...)...)
	p.Env = append(os.Environ(), "LOCKER_COMPARE_TEST=1")
	p.Stdout, p.Stderr = &p.out, &p.errs
	p.Cancel = func() error { return p.Process.Signal(syscall.SIGTERM) } // its children end with it
	p.WaitDelay = time.Minute
	require.NoError(t, p.Start())
	return p
}

func (p *program) status(t *testing.T) int {
	t.Helper()
	_ = p.Wait()
	return p.ProcessState.ExitCode()
}

// A disk that is full ends the run with a clear line, and what was seen is printed.
func TestAFullDiskUnderTheHistories(t *testing.T) {
	t.Parallel()
	// A file may have ten blocks of half a kilobyte, or of one: to a program, that is as a disk that is full.
	p := startProgram(t, "ulimit -f 10;", "--only", "healthy", "file://"+t.TempDir())
	assert.Equal(t, ExitUnavailable, p.status(t), "%s%s", &p.out, &p.errs)
	assert.Contains(t, p.errs.String(), "jsonl ends here: write")
	assert.Regexp(t, `(?m)^exclusion: healthy +held · \d+$`, p.out.String())
}

// What a terminal that is closed, Ctrl-C or the end of a job interrupts is healed and printed.
func TestSignals(t *testing.T) {
	t.Parallel()
	hangup := make(chan os.Signal, 1) // what this process ignores (under nohup), its children would, too
	signal.Notify(hangup, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangup) })
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			broken, healed := filepath.Join(dir, "broken"), filepath.Join(dir, "healed")
			// What heals is interrupted, too, as by Ctrl-C: it is tried again.
			p := startProgram(t, "", "--ttl", "500ms", "--only", "healthy,minority-down",
				"--fault", "minority-down=touch "+broken+"; sleep 60",
				"--heal", "minority-down=rm "+broken+" && exit 1; touch "+healed, "file://"+dir)
			require.Eventually(t, func() bool { _, err := os.Stat(broken); return err == nil }, time.Minute,
				10*time.Millisecond)
			require.NoError(t, p.Process.Signal(sig))
			assert.Equal(t, ExitInterrupted, p.status(t), "%s%s", &p.out, &p.errs)
			assert.FileExists(t, healed)
			assert.Regexp(t, `(?m)^exclusion: healthy +held · \d+$`, p.out.String())
			assert.Contains(t, p.errs.String(), "it was interrupted")
		})
	}
}

// A command that brings a fault about has ten minutes, and what heals it two, each time that it is tried.
func TestACommandThatHangsIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{ctx: t.Context(), untried: map[string]string{}, run: &run{plan: plan{live: testLive{t},
			faults: map[string]ownFault{restarted.ID: {inject: "breaks", heal: "heals"}},
			shell: func(ctx context.Context, command string) (string, error) {
				<-ctx.Done()
				return "", fmt.Errorf("%s: %w", command, ctx.Err())
			}}}}
		b.staged(address{})
		began := time.Now()
		err := b.Do(func() { b.faults[0].inject(b) })
		assert.EqualError(t, err, "fault restart could not be healed: heals: context deadline exceeded")
		assert.Equal(t, 12*time.Minute, time.Since(began))
	})
}

// A service that goes away for good ends its column, and what was seen before is kept.
func TestProveAServiceThatDies(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	lab.Need(t, lab.ToolRedis)
	r := lab.StartRedis(t)
	var out, errs strings.Builder
	status := execute(testOpeners(), []string{"--for=0s", "--out", filepath.Join(t.TempDir(), "run"), "--ttl",
		"500ms", "--only", "healthy,holder-stopped,holder-killed,half-cut", "redis://" + r.Addr()}, &out,
		writer(func(b []byte) (int, error) {
			if strings.Contains(string(b), "redis: healthy: done") {
				r.Kill()
			}
			return errs.Write(b)
		}))
	assert.Equal(t, ExitUnavailable, status, "%s%s", &out, &errs)
	assert.Regexp(t, `(?m)^exclusion: healthy +held · \d+$`, out.String())
	assert.Regexp(t, `(?m)^locker: .*redis did not come back: .+$`, errs.String())
}

type writer func(b []byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// Two URLs are a service whose clients no proxy can stand before.
func TestTwoURLsAreOneService(t *testing.T) {
	const two = "redis://user:hush@127.0.0.1:1 etcd://127.0.0.1:2"
	a, err := parseAddress(two)
	require.NoError(t, err)
	assert.Equal(t, address{straight: two, shown: "redis://***@127.0.0.1:1 etcd://127.0.0.1:2",
		why: "there is no single network between its clients and two services"}, a)
	c, err := openAgain(t.Context(), testOpeners(), "memory:// memory://", nil, time.Second)
	require.NoError(t, err)
	assert.NoError(t, c.Close())
}

// docs/peers.md is about the versions that make compare-peers runs.
func TestThePeersPageHasTheirVersions(t *testing.T) {
	page, err := os.ReadFile("../docs/peers.md")
	require.NoError(t, err)
	mod, err := os.ReadFile("peers/go.mod")
	require.NoError(t, err)
	for _, path := range []string{"bsm/redislock", "redis/rueidis", "go-redsync/redsync", "etcd/client",
		"go-zookeeper/zk"} {
		version := regexp.MustCompile(`(?m)^\t\S*` + path + `(?:/v\d)? (v\S+)$`).FindSubmatch(mod)
		require.NotNil(t, version, path)
		assert.Regexp(t,
			`(?m)^\|.*`+regexp.QuoteMeta(path)+`.*\| `+regexp.QuoteMeta(string(version[1]))+` \|`,
			string(page))
	}
}
