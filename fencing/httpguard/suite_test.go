package httpguard_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/httpguard"
	"github.com/golockers/locker/internal/guardtest"
)

// values are the state of a server. With a guard of their own, they stand for a
// store that has one.
type values struct {
	own *fencing.Guard

	mu sync.Mutex
	of map[string]string
}

func (v *values) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	set := func() error {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.of[r.URL.Path] = string(text)
		return nil
	}
	if r.Method == http.MethodPut && v.own == nil {
		_ = set()
	} else if r.Method == http.MethodPut {
		token, err := fencing.TokenFor(r.Context(), path(r))
		if err == nil {
			err = v.own.Do(r.Context(), path(r), token, set)
		}
		if err != nil && !httpguard.WriteError(w, err) {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	_, _ = io.WriteString(w, v.of[r.URL.Path])
}

func TestSuite(t *testing.T) {
	var guard fencing.Guard
	for name, opts := range map[string]*httpguard.Options{
		"guard of the server": {Guard: &guard},
		"guard of its store":  {Raise: guard.Raise},
	} {
		t.Run(name, func(t *testing.T) {
			guard = fencing.Guard{}
			v := &values{of: map[string]string{}}
			if opts.Guard == nil {
				v.own = &guard
			}
			s := serve(t, opts, v.ServeHTTP)
			guardtest.Run(t, func(t *testing.T) guardtest.Store { return overHTTP(t, newClient(t), s.URL, &guard) })
		})
	}
}

// overHTTP is what the client of a server has for a store.
func overHTTP(t *testing.T, c *http.Client, base string, guard *fencing.Guard) guardtest.Store {
	do := func(
		ctx context.Context, method, r string, token fencing.Token, value string, raise bool,
	) (string, error) {
		req, err := http.NewRequestWithContext(fencing.NewContext(ctx, r, token), method,
			base+"/"+url.PathEscape(r), strings.NewReader(value))
		require.NoError(t, err)
		if raise {
			httpguard.RaiseFirst(req)
		}
		resp, err := c.Do(req)
		if err != nil {
			return "", err
		}
		defer func() { _ = resp.Body.Close() }()
		if err := httpguard.CheckResponse(resp); err != nil {
			return "", named(err, r)
		}
		text, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode >= 300 {
			err = fmt.Errorf("%s: %s", resp.Status, text)
		}
		return string(text), err
	}
	return guardtest.Store{
		Write: func(ctx context.Context, r string, token fencing.Token, value string) error {
			_, err := do(ctx, http.MethodPut, r, token, value, false)
			return err
		},
		Raise: func(ctx context.Context, r string, token fencing.Token) error {
			_, err := do(ctx, http.MethodGet, r, token, "", true)
			return err
		},
		Read: func(ctx context.Context, r string) (string, error) {
			return do(ctx, http.MethodGet, r, 0, "", false)
		},
		Mark: func(_ context.Context, r string) (fencing.Token, error) {
			mark, _ := guard.Mark("/" + r)
			return mark, nil
		},
	}
}

// named gives a refusal the name that the suite has for the resource.
func named(err error, r string) error {
	//nolint:errorlint // CheckResponse wraps nothing around it
	if stale, ok := err.(*fencing.StaleError); ok && stale.Resource == "/"+r {
		stale.Resource = r
	}
	return err
}

func TestRaiseThatNobodyDoesIsNotTakenForOne(t *testing.T) {
	guarded := serve(t, nil, func(http.ResponseWriter, *http.Request) { t.Error("handled") })
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer plain.Close()
	for url, want := range map[string]int{guarded.URL: http.StatusNotImplemented, plain.URL: http.StatusOK} {
		req := request(t, "GET", url, 7, "")
		httpguard.RaiseFirst(req)
		resp, err := newClient(t).Do(req)
		require.NoError(t, err)
		assert.Equal(t, want, resp.StatusCode)
		if err = httpguard.CheckResponse(resp); want == http.StatusOK {
			require.ErrorIs(t, err, errors.ErrUnsupported)
		}
		require.NoError(t, resp.Body.Close())
	}
}
