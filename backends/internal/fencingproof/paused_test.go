package fencingproof_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/httpguard"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/redlock"
	"github.com/golockers/locker/single"
	"github.com/golockers/locker/zookeeper"
)

func TestMain(m *testing.M) {
	lab.RunRole(lab.Roles{"holder": holderRole})
	goleak.VerifyTestMain(m)
}

// patience is for machines that are busy: nothing here takes that long.
const patience = 30 * time.Second

var openers = driver.Openers{"redis": single.Open, "redlock": redlock.Open, "etcd": etcd.Open,
	"zookeeper": zookeeper.Open}

// open returns a client of the lock service at url, closed with the test.
func open(t *testing.T, url string, opts *locker.Options) *locker.Client {
	t.Helper()
	c, err := locker.Open(locktest.Within(t, patience), url, opts, openers)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// insist repeats f while the service is away, or the machine too busy for such short TTLs.
func insist[T any](f func() (T, error)) (T, error) {
	for began := time.Now(); ; {
		v, err := f()
		if !errors.Is(err, locker.ErrUnavailable) && !errors.Is(err, locker.ErrLost) || time.Since(began) > patience {
			return v, err
		}
	}
}

func lock(t *testing.T, c *locker.Client, name string) (*locker.Lease, fencing.Token) {
	t.Helper()
	lease, err := insist(func() (*locker.Lease, error) { return c.Lock(locktest.Within(t, patience), name) })
	require.NoError(t, err)
	token, err := fencing.Of(lease)
	require.NoError(t, err)
	return lease, token
}

// resource is a server that keeps values in its memory: those below /plain take every write, those below /guarded
// are behind its guard.
type resource struct {
	*httptest.Server
	guard fencing.Guard

	mu    sync.Mutex
	state map[string]string // by path
}

func startResource(t *testing.T) *resource {
	r := &resource{state: map[string]string{}}
	mux := http.NewServeMux()
	mux.Handle("/plain/{name}", r)
	mux.Handle("/guarded/{name}", httpguard.Handler(r,
		func(req *http.Request) string { return req.PathValue("name") }, &httpguard.Options{Guard: &r.guard}))
	r.Server = httptest.NewServer(mux)
	t.Cleanup(r.Close)
	return r
}

func (r *resource) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	text, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.set(req.URL.Path, string(text))
}

func (r *resource) set(path, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state[path] = value
}

func (r *resource) get(path string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state[path]
}

// write writes the guarded value as the holder with token.
func (r *resource) write(t *testing.T, name string, token fencing.Token, value string) error {
	return r.guard.Do(t.Context(), name, token, func() error { r.set("/guarded/"+name, value); return nil })
}

// put writes from another process.
func put(ctx context.Context, url, value string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(value))
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: &httpguard.Transport{}}).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= http.StatusInternalServerError {
		return errors.New(resp.Status)
	}
	return httpguard.CheckResponse(resp)
}

// startRedises starts so many servers for a URL.
func startRedises(t *testing.T, n int, url string) (string, []*lab.Redis) {
	var servers []*lab.Redis
	var addrs []string
	for range n {
		servers = append(servers, lab.StartRedis(t))
		addrs = append(addrs, servers[len(servers)-1].Addr())
	}
	return fmt.Sprintf(url, strings.Join(addrs, ",")), servers
}

// A holder in a process of its own takes a lock, looks at its lease, finds it valid, and is stopped (SIGSTOP) between
// that look and its write. When its lease has run out and another holder has written, or has only raised the mark and
// read, it goes on (SIGCONT), and writes. Nothing depends on luck with time: the holder says that it has looked, and
// waits for a word of the test, which the test sends when another client has got the lock.
func TestAHolderPausedBetweenItsLookAndItsWrite(t *testing.T) {
	lab.NeedPause(t)
	for service, start := range map[string]func(t *testing.T) (url string){
		"single": func(t *testing.T) string { url, _ := startRedises(t, 1, "redis://%s?ttl=1s"); return url },
		"redlock": func(t *testing.T) string { // the restart guard would keep new servers out for one TTL
			url, _ := startRedises(t, 5, "redlock://%s?ttl=1s&fencing=on&restart_guard=off")
			return url
		},
		"etcd":      func(t *testing.T) string { return "etcd://" + lab.StartEtcd(t, 1).Nodes[0].Addr() + "?ttl=2s" },
		"zookeeper": func(t *testing.T) string { return "zookeeper://" + lab.StartZooKeeper(t).Addr() + "?ttl=2s" },
	} {
		t.Run(service, func(t *testing.T) {
			url, r := start(t), startResource(t)
			second := open(t, url, nil)
			for round := range 2 {
				var holders []*holder // as many at once as a small machine can start: their leases run out together
				for i := range 8 {
					holders = append(holders, startHolder(t, url, fmt.Sprintf("%s-%d-%d", service, round, i), r))
				}
				for _, h := range holders {
					h.stopBeforeWrite(t)
				}
				for i, h := range holders {
					lease, token := lock(t, second, h.name) // waits until the first one's time is over
					require.Greater(t, token, h.token)
					if i%2 == 0 {
						require.NoError(t, r.guard.Raise(t.Context(), h.name, token))
					} else {
						require.NoError(t, r.write(t, h.name, token, "second"))
					}
					assert.Contains(t, h.goOn(t, r, token), locker.ErrLost.Error(), "now that it looks, it sees it")
					require.NoError(t, r.write(t, h.name, token, "again"), "who holds the lock goes on")
					_ = lease.Unlock(t.Context())
				}
			}
		})
	}
}

// A Redis that is restarted without persistence has forgotten the lock and the token counter. Two hold the lock then;
// the tokens of the later one are higher still, by the server's clock, so that the earlier is refused. The same where
// all servers of a quorum are restarted and its restart guard is off.
func TestRedisRestartedWithoutItsDataUnderAPausedHolder(t *testing.T) {
	lab.NeedPause(t)
	for n, url := range map[int]string{1: "redis://%s?ttl=30s", 3: "redlock://%s?ttl=30s&fencing=on&restart_guard=off"} {
		url, servers := startRedises(t, n, url)
		r, second := startResource(t), open(t, url, nil)
		var last fencing.Token
		for range 4 {
			h := startHolder(t, url, "restarted", r)
			h.stopBeforeWrite(t)
			assert.Greater(t, h.token, last)
			for _, server := range servers {
				server.Kill()
			}
			for _, server := range servers {
				server.Restart(t)
			}
			lease, token := lock(t, second, "restarted")
			assert.Greater(t, token, h.token, "tokens rise through the loss of all data")
			last = token
			require.NoError(t, r.write(t, "restarted", token, "second"))
			h.goOn(t, r, token)
			_ = lease.Unlock(t.Context()) // it may have been lost on a slow machine
		}
	}
}

// holderRole is the holder that will be paused. Its arguments are the URL of the lock service, the name of the lock,
// and the URL of the resource's server.
func holderRole(p *lab.Parent) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	ctx, name := context.Background(), p.Args[1]
	client, err := insist(func() (*locker.Client, error) { return locker.Open(ctx, p.Args[0], nil, openers) })
	must(err)
	p.Say("ready")

	p.Hear()
	lease, err := insist(func() (*locker.Lease, error) {
		lease, err := client.Lock(ctx, name)
		if err == nil {
			err = lease.Err()
		}
		return lease, err
	})
	must(err)
	token, err := fencing.Of(lease)
	must(err)
	p.Say("checked %d, valid: %t", token, lease.Err() == nil)

	// Here it is stopped, and it has nothing more to do before its write than to hear that it shall: it does not look
	// again, as a holder does not that is stopped by its machine. Neither does the write end with the lease: what is
	// already in a socket, or in a call that knows no context, cannot.
	p.Hear()
	ctx = fencing.NewContext(ctx, name, token)
	p.Say("plain %v", put(ctx, p.Args[2]+"/plain/"+name, "first"))
	p.Say("guarded %v", put(ctx, p.Args[2]+"/guarded/"+name, "first"))
	p.Say("lease %v", lease.Err())
}

// holder is that child, seen from the test.
type holder struct {
	*lab.Child
	name  string
	token fencing.Token
}

func startHolder(t *testing.T, url, name string, r *resource) *holder {
	t.Helper()
	return &holder{Child: lab.StartChild(t, "holder", url, name, r.URL), name: name}
}

// stopBeforeWrite lets the holder take the lock and look at its lease, and returns when it stands still between that
// and its write.
func (h *holder) stopBeforeWrite(t *testing.T) {
	t.Helper()
	h.Expect(t, "ready", patience)
	h.Send(t, "lock")
	said := h.Expect(t, "checked", patience)
	h.Pause()
	number, valid, _ := strings.Cut(said, ", ")
	require.Equal(t, "valid: true", valid, "it must have found its lease valid")
	var err error
	h.token, err = fencing.Parse(number)
	require.NoError(t, err)
}

// goOn lets the holder go on, checks that its write to the plain value landed and that the one to the guarded value
// was refused by mark, and returns what it then says of its lease.
func (h *holder) goOn(t *testing.T, r *resource, mark fencing.Token) (lease string) {
	t.Helper()
	before := r.get("/guarded/" + h.name)
	h.Send(t, "write") // it reads that when it runs again
	h.Resume()
	require.Equal(t, "<nil>", h.Expect(t, "plain", patience))
	require.Equal(t, "first", r.get("/plain/"+h.name), "a lock alone prevents nothing: or this proves nothing")
	refusal := &fencing.StaleError{Resource: h.name, Token: h.token, Mark: mark}
	require.Equal(t, refusal.Error(), h.Expect(t, "guarded", patience), "the holder is told, with both numbers")
	require.Equal(t, before, r.get("/guarded/"+h.name))
	defer h.Kill()
	return h.Expect(t, "lease", patience)
}
