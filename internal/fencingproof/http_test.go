package fencingproof_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/httpguard"
)

// openHTTP opens a thing on the server of a resource: "http URL".
func openHTTP(url string) *target {
	client := &http.Client{Transport: &httpguard.Transport{Base: &http.Transport{},
		Lock: func(*http.Request) string { return "it" }}}
	return &target{
		write: func(ctx context.Context, token fencing.Token, value string) error {
			_, err := send(fencing.NewContext(ctx, "it", token), client, http.MethodPut, url, value, false)
			return err
		},
		raise: func(ctx context.Context, token fencing.Token) error {
			_, err := send(fencing.NewContext(ctx, "it", token), client, http.MethodGet, url, "", true)
			return err
		},
		read: func(ctx context.Context) (string, error) {
			return send(ctx, client, http.MethodGet, url, "", false)
		},
		close: client.CloseIdleConnections,
	}
}

func send(ctx context.Context, client *http.Client, method, url, value string, raise bool) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(value))
	if err != nil {
		return "", err
	}
	if raise {
		httpguard.RaiseFirst(req)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := httpguard.CheckResponse(resp); err != nil {
		return "", err
	}
	text, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, text)
	}
	return string(text), err
}

// resource is a server that keeps things in its memory: below /plain those
// that take every write, below /guarded those behind its guard.
type resource struct {
	url   string
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
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	r.url = s.URL
	return r
}

func (r *resource) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	text, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if req.Method == http.MethodPut {
		r.state[req.URL.Path] = string(text)
	}
	_, _ = io.WriteString(w, r.state[req.URL.Path])
}

func (r *resource) thing(name string) thing {
	return thing{"http", "http " + r.url + "/plain/" + name, "http " + r.url + "/guarded/" + name}
}
