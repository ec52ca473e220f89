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

// target is where a holder writes, with the token of its context. The holder
// in the child and the one in the test write by the same code.
type target interface {
	// write returns an error that matches fencing.ErrStale if it was refused.
	write(ctx context.Context, value string) error
	close()
}

// targets says how to make each kind of target from the words of its
// description, which is what a child is told.
var targets = map[string]func(words []string) (target, error){
	"plain": newHTTPTarget,
	"http":  newHTTPTarget,
}

func openTarget(description string) (target, error) {
	words := strings.Fields(description)
	make, ok := targets[words[0]]
	if !ok {
		return nil, fmt.Errorf("no target %q", description)
	}
	return make(words[1:])
}

// httpTarget is a thing on the server of a resource.
type httpTarget struct {
	url    string
	client *http.Client
}

func newHTTPTarget(words []string) (target, error) {
	base := &http.Transport{}
	return &httpTarget{words[0], &http.Client{Transport: &httpguard.Transport{Base: base}, Timeout: patience}}, nil
}

func (h *httpTarget) write(ctx context.Context, value string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, h.url, strings.NewReader(value))
	if err != nil {
		return err
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := httpguard.CheckResponse(resp); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", h.url, resp.Status)
	}
	return nil
}

func (h *httpTarget) close() { h.client.CloseIdleConnections() }

// resource is a server with things to write to: each once as it is, below
// /plain, and once behind a guard, below /guarded.
type resource struct {
	guard  fencing.Guard
	server *httptest.Server

	mu    sync.Mutex
	state map[string]string // by path
}

func startResource(t *testing.T) *resource {
	r := &resource{state: map[string]string{}}
	save := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		value, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.state[req.URL.Path] = string(value)
	})
	mux := http.NewServeMux()
	mux.Handle("PUT /plain/{name}", save)
	mux.Handle("PUT /guarded/{name}", httpguard.Handler(save,
		func(req *http.Request) string { return req.PathValue("name") }, &httpguard.Options{Guard: &r.guard}))
	r.server = httptest.NewServer(mux)
	t.Cleanup(r.server.Close)
	return r
}

// plain describes the thing that takes every write.
func (r *resource) plain(name string) string { return "plain " + r.server.URL + "/plain/" + name }

// guarded describes the thing behind a guard.
func (r *resource) guarded(name string) string { return "http " + r.server.URL + "/guarded/" + name }

// read returns what was written last to what a description says.
func (r *resource) read(description string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state[strings.TrimPrefix(strings.Fields(description)[1], r.server.URL)]
}
