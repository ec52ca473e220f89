// Command http guards the state in the memory of an HTTP server. The holder of the lock
// is its client.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/golockers/locker/examples/internal/story"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/httpguard"
)

// serve is the server. Behind the Handler, fencing.TokenFor also has the token for a database's guard.
func serve() *httptest.Server {
	var guard fencing.Guard
	var mu sync.RWMutex // reads have no turn
	state := ""
	orders := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut { // a POST is a GET that raises the mark
			mu.RLock()
			defer mu.RUnlock()
			_, _ = io.WriteString(w, state)
			return
		}
		text, err := io.ReadAll(r.Body)
		if err != nil { // a part is not the state
			http.Error(w, "the body broke off", http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		state = string(text)
	})
	resource := func(*http.Request) string { return "order/42" }
	return httptest.NewServer(httpguard.Handler(orders, resource, &httpguard.Options{Guard: &guard}))
}

var client = &http.Client{Transport: &httpguard.Transport{}} // takes the token from the context

func do(req *http.Request, err error) (string, error) {
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := httpguard.CheckResponse(resp); err != nil {
		return "", err // refused
	}
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 { // not refused, but not (certainly) written
		err = fmt.Errorf("%s: %s", req.Method, resp.Status)
	}
	return string(text), err
}

func main() {
	server := serve()
	defer server.Close()
	story.Tell(context.Background(), "redis://localhost:6379", story.Order{
		Raise: func(ctx context.Context, resource string, token fencing.Token) error {
			ctx = fencing.NewContext(ctx, resource, token) // fencing.Do does this in its context
			_, err := do(http.NewRequestWithContext(ctx, http.MethodPost, server.URL, nil))
			return err
		},
		Set: func(ctx context.Context, token fencing.Token, state string) error {
			ctx = fencing.NewContext(ctx, story.Lock, token)
			_, err := do(http.NewRequestWithContext(ctx, http.MethodPut, server.URL, strings.NewReader(state)))
			return err
		},
		Get: func(ctx context.Context) (string, error) {
			return do(http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil))
		},
	})
}
