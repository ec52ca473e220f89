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

// serve is the server. Behind the Handler, fencing.TokenFor has the token for the guard of a database, too.
func serve() *httptest.Server {
	var guard fencing.Guard
	var mu sync.RWMutex // reads have no turn
	state := ""
	orders := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
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

type order struct{ url string }

var client = &http.Client{Transport: &httpguard.Transport{}} // takes the token from the context

func (o order) Raise(ctx context.Context, token fencing.Token) error {
	_, err := o.do(ctx, http.MethodGet, token, "", true)
	return err
}

func (o order) Set(ctx context.Context, token fencing.Token, state string) error {
	_, err := o.do(ctx, http.MethodPut, token, state, false)
	return err
}

func (o order) Get(ctx context.Context) (string, error) {
	return o.do(ctx, http.MethodGet, 0, "", false)
}

func (o order) do(ctx context.Context, method string, token fencing.Token, body string,
	raise bool) (string, error) {
	ctx = fencing.NewContext(ctx, "order/42", token) // fencing.Do has done it where its context came along
	req, err := http.NewRequestWithContext(ctx, method, o.url, strings.NewReader(body))
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
		return "", err // refused
	}
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 { // no refusal, and not written either, or not for certain
		err = fmt.Errorf("%s: %s", method, resp.Status)
	}
	return string(text), err
}

func main() {
	server := serve()
	defer server.Close()
	story.Tell(context.Background(), "redis://localhost:6379", order{server.URL})
}
