//go:build unix

package main_test

import (
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golockers/locker/internal/lab"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHeldByAnother(t *testing.T) {
	backend := []with{fileBackend(t)}
	holder := holding(t, backend)
	play(t, backend,
		fails(75, `"a" is held by `, "run --try a -- echo ran"),
		fails(75, "", "run --try -q a -- echo ran"),
		fails(75, `"a" is held by `, "run --wait 0s a -- echo ran"),
		fails(7, "", "run --wait 10ms --quiet --conflict-exit-code 7 a -- echo ran"),
		fails(0, `"a" is held by `, "run --try -E 0 a -- echo ran"),
		// Other errors are neither silent nor given that status.
		fails(64, "the name is empty", "run -q -E 7 --try", "", "--", "true"),
		prints("", "run --try b -- true"))

	began := time.Now()
	assert.Equal(t, 75, do(t, backend, "run", "--wait", "300ms", "a", "--", "echo", "ran").status)
	assert.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
	assert.Less(t, time.Since(began), patience/2)

	waiter := start(t, backend, "run", "--wait", patience.String(), "a", "--", "echo", "ran")
	holder.signal(os.Interrupt)
	holder.expect("got SIGINT")
	assert.True(t, waiter.running())
	holder.end()
	waiter.expect("ran")
	assert.Equal(t, 0, waiter.wait())
}

// A process that has left the command has its environment, and may well ask for the name.
func TestFormerlyNestedRunWaits(t *testing.T) {
	for what, change := range map[string]func(url.Values){
		"another label": func(outer url.Values) { outer["a"][0] += "0" },
		"another token": func(outer url.Values) { outer["a"][1] += "0" }, // locker is PID 1 of each container
	} {
		t.Run(what, func(t *testing.T) {
			backend := fileBackend(t)
			holder := start(t, []with{backend}, "run", "a", "--", "sh", "-c",
				"printenv LOCKER_OUTER; exec sleep 60")
			outer, err := url.ParseQuery(holder.expect(""))
			require.NoError(t, err)
			change(outer)
			inside := withEnv("LOCKER_OUTER=" + outer.Encode())
			next := start(t, []with{backend, inside}, "run", "a", "--", "echo", "ran")
			assert.Never(t, func() bool { return strings.Contains(next.said(), "reentrant") },
				300*time.Millisecond, 10*time.Millisecond)
			holder.signal(syscall.SIGTERM)
			next.expect("ran")
			assert.Equal(t, 0, next.wait())
		})
	}
}

// A job that starts while its service restarts has to run.
func TestOutageAtTheStartIsWaitedOut(t *testing.T) {
	t.Parallel()
	for what, flags := range map[string][]string{"for --wait": {"--wait", "20s", "--ttl", "4s"},
		"for a TTL": {"--ttl", "20s"}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := startService(t)
			s.proxy.Set(lab.Reset)
			p := start(t, []with{s.through()}, slices.Concat([]string{"run"}, flags, []string{"a", "--",
				"echo", "ran"})...)
			p.expectSaid(`waiting for "a"`)
			s.proxy.Set(lab.Pass)
			p.expect("ran")
			assert.Equal(t, 0, p.wait())
		})
	}
}

func TestWhatCannotGetBetterIsToldAtOnce(t *testing.T) {
	s := startService(t)
	began := time.Now()
	r := do(t, []with{withEnv("LOCKER_BACKEND=redis://user:hush@" + s.Addr())}, "run", "--wait", "20s",
		"a", "--", "echo", "ran")
	assert.Equal(t, 69, r.status)
	assert.Contains(t, r.stderr, "WRONGPASS")
	assert.NotContains(t, r.stderr, "hush")
	assert.Less(t, time.Since(began), 10*time.Second)
	assert.Equal(t, 64, do(t, []with{s.direct()}, "run", "--ttl", "1ms", "a", "--", "true").status)
}

func TestOutageDuringTheWaitIsSatOutForAsLongAsTheWait(t *testing.T) {
	t.Parallel()
	for _, wait := range []string{"8s", "20s"} {
		t.Run(wait, func(t *testing.T) {
			t.Parallel()
			s := startService(t)
			holder := holding(t, []with{s.direct()}, shortTTL...)
			impatient := urls("redis://" + s.proxy.Addr() + "?outage_timeout=500ms")
			waiter := start(t, impatient, "run", "--wait", wait, "a", "--", "echo", "ran")
			waiter.expectSaid(`waiting for "a": held by `)
			s.proxy.Set(lab.Reset)
			waiter.expectSaid("trying until")
			if wait == "8s" {
				assert.Equal(t, 69, waiter.wait(), waiter.said())
				assert.Empty(t, waiter.stdout())
				return
			}
			time.Sleep(1500 * time.Millisecond) // far more than the outage_timeout of the URL
			require.True(t, waiter.running(), "it has waited for less than --wait: %s", waiter.said())
			holder.signal(syscall.SIGTERM)
			s.proxy.Set(lab.Pass)
			waiter.expect("ran")
			assert.Equal(t, 0, waiter.wait())
		})
	}
}

// services start a lock service each, and return its URL.
var services = map[string]func(*testing.T) string{
	"file":  func(t *testing.T) string { return "file://" + t.TempDir() },
	"redis": func(t *testing.T) string { return "redis://" + lab.StartRedis(t).Addr() },
	"redlock": func(t *testing.T) string {
		var addrs []string
		for range 3 {
			addrs = append(addrs, lab.StartRedis(t).Addr())
		}
		return "redlock://" + strings.Join(addrs, ",") + "?restart_guard=off"
	},
	"etcd": func(t *testing.T) string { return "etcd://" + lab.StartEtcd(t, 1).Nodes[0].Addr() },
	"postgres": func(t *testing.T) string {
		s := lab.StartPostgres(t)
		return s.URL(s.Addr(), "sslmode=disable")
	},
	"zookeeper": func(t *testing.T) string { return "zookeeper://" + lab.StartZooKeeper(t).Addr() },
}

func TestEveryService(t *testing.T) {
	t.Parallel()
	for name, startService := range services {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serves(t, name != "redlock", withEnv("LOCKER_BACKEND="+startService(t)))
		})
	}
}

// A Pod whose ServiceAccount has the rights that the documentation names, and no others.
func TestProveKubernetes(t *testing.T) {
	lab.NeedProve(t)
	k := lab.StartKubernetes(t)
	host, port, err := net.SplitHostPort(k.Addr())
	require.NoError(t, err)
	credentials := k.Account(t, "jobs", "cron", "get", "create", "update", "list", "watch")
	pod := []with{
		withEnv("KUBERNETES_SERVICE_HOST=" + host), withEnv("KUBERNETES_SERVICE_PORT=" + port),
		withEnv("LOCKER_BACKEND=kubernetes://jobs?min_ttl=4s&credentials=" + credentials),
	}
	serves(t, true, pod...)
	p := holding(t, pod, "--ttl", "4s")
	assert.Regexp(t, `(?m)^a +\S+@`, do(t, pod, "list").stdout)
	for _, asks := range []string{"--try", "--wait=1s"} {
		r := do(t, pod, "run", "--ttl", "4s", asks, "a", "--", "true")
		assert.Contains(t, r.stderr, "if its holder is dead, this service sees it only after", asks)
	}
	p.end()
	r := do(t, pod, "check")
	assert.Equal(t, 0, r.status, r.stdout+r.stderr)
	var kept struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	require.NoError(t, k.Ask(http.MethodGet, "/apis/coordination.k8s.io/v1/namespaces/jobs/leases", nil, &kept))
	assert.Regexp(t, `locker-locker-check-.-`, kept.Items, "one of few: its record stays")
	r = do(t, pod, "compare", "--for", "0s", "--ttl", "2s", "--only", "healthy", "--out", t.TempDir(), "--require", "exclusion",
		"kubernetes://jobs?min_ttl=1s&credentials="+credentials)
	assert.Equal(t, 0, r.status, r.stdout+r.stderr)
	assert.Contains(t, r.stdout, "exclusion: healthy")
	for _, rights := range []string{"get create", "create update", "get update"} {
		verbs := strings.Fields(rights)
		pod[2] = withEnv("LOCKER_BACKEND=kubernetes://jobs?credentials=" + k.Account(t, "jobs", strings.Join(verbs, "-"), verbs...))
		r = do(t, pod, "run", "a", "--", "echo", "ran")
		assert.NotZero(t, r.status)
		assert.Empty(t, r.stdout)
		for _, verb := range []string{"get", "create", "update"} {
			assert.Equal(t, !slices.Contains(verbs, verb), strings.Contains(r.stderr, "verbs ["+verb+"]"), r.stderr)
		}
	}
}

// serves has one hold a lock, another refused and a third wait for it.
func serves(t *testing.T, tokens bool, backend ...with) {
	t.Helper()
	p := holding(t, backend, "--ttl", "10s")
	r := do(t, backend, "run", "--ttl", "10s", "--try", "a", "--", "echo", "ran")
	assert.Equal(t, 75, r.status, r.stderr)
	assert.Regexp(t, `\Alocker: [^\n]*\n\z`, r.stderr)
	assert.Contains(t, do(t, backend, "inspect", "a").stdout, `"a": held by `)
	another := withEnv("LOCKER_TOKEN=another lock's")
	next := start(t, append(backend, another), "run", "--ttl", "10s", "--wait", patience.String(), "a", "--",
		"sh", "-c", "echo ran with ${LOCKER_TOKEN-none}")
	p.end()
	assert.Empty(t, p.complaints())
	assert.Regexp(t, map[bool]string{false: `^none$`, true: `^\d+$`}[tokens], next.expect("ran with"))
	assert.Equal(t, 0, next.wait())
	assert.Empty(t, next.complaints())
	assert.Equal(t, `"a": free`, do(t, backend, "inspect", "a").stdout)
}
