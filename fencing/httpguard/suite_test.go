package httpguard_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
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
			guardtest.Run(t, func(t *testing.T) guardtest.Store { return overHTTP(t, clientOf(t, s), s.URL, &guard) })
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
	ask := func(url string, c *http.Client) (int, error) {
		req := request(t, "GET", url, 7, "")
		httpguard.RaiseFirst(req)
		resp, err := c.Do(req)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		return resp.StatusCode, httpguard.CheckResponse(resp)
	}
	s := serve(t, nil, func(http.ResponseWriter, *http.Request) { t.Error("handled") })
	status, err := ask(s.URL, clientOf(t, s))
	require.NoError(t, err)
	assert.Equal(t, http.StatusNotImplemented, status)

	plain := serverOf(t, func(http.ResponseWriter, *http.Request) {})
	status, err = ask(plain.URL, clientOf(t, plain))
	assert.Equal(t, http.StatusOK, status)
	require.ErrorContains(t, err, "without having raised the mark")

	req := request(t, "GET", plain.URL, 0, "")
	httpguard.RaiseFirst(req)
	_, err = clientOf(t, plain).Do(req) //nolint:bodyclose // there is none
	require.ErrorIs(t, err, fencing.ErrMissing)
}

func TestWithTokensOfTwoLocksTheTransportIsToldWhichIsMeant(t *testing.T) {
	b := &base{}
	ctx := fencing.NewContext(fencing.NewContext(t.Context(), "order", 3), "invoice", 900)
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://host/order", nil)
	require.NoError(t, err)
	err = trip(&httpguard.Transport{Base: b}, req)
	require.ErrorIs(t, err, locker.ErrInvalid)
	require.ErrorContains(t, err, "Transport.Lock")
	assert.Empty(t, b.sent)
	lock := func(r *http.Request) string { return r.URL.Path[1:] }
	err = trip(&httpguard.Transport{Base: b, Lock: lock}, req)
	require.NoError(t, err)
	assert.Equal(t, "3", b.sent[0].Header.Get(httpguard.Header))
}
