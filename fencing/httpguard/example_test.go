package httpguard_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/httpguard"
	"github.com/golockers/locker/memory"
)

// A holder that was paused sends its write when the next holder has written.
func Example() {
	// The server that owns the report.
	report := ""
	save := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil { // broken off: a part is not the report
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		report = string(text) // one at a time: the Guard sees to it
	})
	var guard fencing.Guard
	server := httptest.NewServer(httpguard.Handler(save, func(*http.Request) string { return "report/7" },
		&httpguard.Options{Guard: &guard}))
	defer server.Close()

	// A client that holds the lock.
	client := &http.Client{Transport: &httpguard.Transport{}}
	write := func(ctx context.Context, text string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL, strings.NewReader(text))
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if err := httpguard.CheckResponse(resp); err != nil {
			return err
		}
		if resp.StatusCode >= 300 { // not a refusal, and not written either, or not for certain
			return fmt.Errorf("PUT: %s", resp.Status)
		}
		return nil
	}

	locks := locker.New(memory.New(), nil)
	defer locks.Close()
	var paused context.Context
	_ = fencing.Do(context.Background(), locks, "report/7", func(ctx context.Context) error {
		paused = context.WithoutCancel(ctx) // here it stops, for longer than its lease
		return nil
	})
	err := fencing.Do(context.Background(), locks, "report/7", func(ctx context.Context) error {
		return write(ctx, "by the second holder")
	})
	fmt.Println("second:", err)
	fmt.Println("first:", write(paused, "by the first holder"))
	fmt.Println("none:", write(context.Background(), "by nobody") != nil)
	fmt.Println("the report is", report)

	// Output:
	// second: <nil>
	// first: fencing: stale fencing token 1 for "report/7": it has seen 2, so a later holder was here
	// none: true
	// the report is by the second holder
}
