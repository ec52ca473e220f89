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

// httpTarget is a thing on the server of a resource: "http URL".
type httpTarget struct {
	url    string
	client *http.Client
}

func openHTTP(url string) (target, error) {
	return &httpTarget{url, &http.Client{Transport: &httpguard.Transport{Base: &http.Transport{}}}}, nil
}

func (h *httpTarget) write(ctx context.Context, value string) error {
	_, err := h.do(ctx, http.MethodPut, value, false)
	return err
}

func (h *httpTarget) raise(ctx context.Context) error {
	_, err := h.do(ctx, http.MethodGet, "", true)
	return err
}

func (h *httpTarget) read(ctx context.Context) (string, error) {
	return h.do(ctx, http.MethodGet, "", false)
}

func (h *httpTarget) do(ctx context.Context, method, value string, raise bool) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, h.url, strings.NewReader(value))
	if err != nil {
		return "", err
	}
	if raise {
		httpguard.RaiseFirst(req)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := httpguard.CheckResponse(resp); err != nil {
		return "", err
	}
	text, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s %s: %s: %s", method, h.url, resp.Status, text)
	}
	return string(text), err
}

func (h *httpTarget) close() { h.client.CloseIdleConnections() }

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
