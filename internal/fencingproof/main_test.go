package fencingproof_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker"
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

var openers = locker.Openers{"redis": single.Open, "redlock": redlock.Open, "etcd": etcd.Open,
	"zookeeper": zookeeper.Open}

// open returns a client of the lock service at url, closed with the test.
func open(t *testing.T, url string, opts *locker.Options) *locker.Client {
	t.Helper()
	c, err := openers.Open(locktest.Within(t, patience), url, opts)
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
