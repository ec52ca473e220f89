package conformance_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
)

// serve makes the table of the other example an HTTP service: a refusal is a conflict, with the
// remaining time.
func serve(locks *table) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /set", func(w http.ResponseWriter, r *http.Request) {
		ttl, err := time.ParseDuration(r.FormValue("ttl"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ok, remaining := locks.set(r.FormValue("name"), r.FormValue("owner"), ttl, r.FormValue("renew") != "")
		if !ok {
			http.Error(w, remaining.String(), http.StatusConflict)
		}
	})
	mux.HandleFunc("POST /remove", func(w http.ResponseWriter, r *http.Request) {
		if !locks.remove(r.FormValue("name"), r.FormValue("owner")) {
			http.Error(w, "0s", http.StatusConflict)
		}
	})
	return mux
}

// remote is a client of that service. Package http replaces a broken connection, and returns when a
// context ends, whatever the network does.
type remote struct {
	addr   string
	http   http.Client
	closed atomic.Bool
}

func connect(addr string) *remote {
	// Without the Timeout, a request on a silent network would hang forever if its context cannot end.
	return &remote{addr: addr, http: http.Client{Transport: &http.Transport{}, Timeout: 5 * time.Second}}
}

func (r *remote) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		Backend:    "remote",
		Scope:      driver.ScopeNetwork,
		Exclusion:  driver.ExclusionServer,
		DeadHolder: driver.RecoveryAfterTTL,
		RestsOn:    "the memory of one server, with which locks end",
	}
}

// ask sends one request. After an error it is unknown whether the request was carried out.
func (r *remote) ask(ctx context.Context, path string, form url.Values) (
	ok bool, remaining time.Duration, err error) {
	if r.closed.Load() {
		return false, 0, driver.ErrClosed
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.addr+path,
		strings.NewReader(form.Encode()))
	if err != nil {
		return false, 0, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := r.http.Do(req)
	if err != nil {
		return false, 0, unanswered(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return false, 0, unanswered(ctx, err)
	case resp.StatusCode == http.StatusConflict:
		remaining, err = time.ParseDuration(strings.TrimSpace(string(text)))
		return false, remaining, err
	case resp.StatusCode != http.StatusOK:
		return false, 0, fmt.Errorf("the service says %s: %s", resp.Status, text)
	}
	return true, 0, nil
}

// unanswered is the error of a request without an answer. If its context has ended, http returns the
// context's cause.
func unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

func (r *remote) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	e := &remoteEntry{remote: r, form: url.Values{"name": {req.Name}, "owner": {req.Owner},
		"ttl": {req.TTL.String()}}, ttl: req.TTL}
	since := time.Now()
	e.undo.Sends(req.TTL)
	ok, remaining, err := r.ask(ctx, "/set", e.form)
	e.undo.Sent(err != nil) // after an error, the request may still arrive
	switch {
	case r.closed.Load():
		return driver.Grant{}, driver.ErrClosed
	case err != nil:
		return driver.Grant{Hold: e}, err // the engine takes back what it may have left
	case !ok:
		return driver.Grant{Refused: &driver.Refusal{Remaining: remaining}}, nil
	}
	return driver.Grant{Hold: e, Validity: driver.Validity{Since: since, TTL: req.TTL}}, nil
}

func (r *remote) Close() error {
	r.closed.Store(true)
	r.http.CloseIdleConnections()
	return nil
}

// remoteEntry is a held lock, in the form in which it is sent.
type remoteEntry struct {
	remote *remote
	form   url.Values
	ttl    time.Duration
	undo   driver.Undo
}

func (e *remoteEntry) Renew(ctx context.Context) (driver.Validity, error) {
	form := url.Values{"renew": {"true"}, "name": e.form["name"], "owner": e.form["owner"], "ttl": e.form["ttl"]}
	since := time.Now()
	e.undo.Sends(e.ttl)
	ok, _, err := e.remote.ask(ctx, "/set", form)
	e.undo.Sent(false) // a late one finds the lock gone, and does nothing
	if err == nil && !ok {
		err = driver.ErrLost
	}
	return driver.Validity{Since: since, TTL: e.ttl}, err
}

func (e *remoteEntry) Release(ctx context.Context, _ time.Duration) error {
	ok, _, err := e.remote.ask(ctx, "/remove", e.form)
	if err == nil && !ok {
		err = driver.ErrLost
	}
	return err
}

func (e *remoteEntry) Undo(ctx context.Context) error {
	return e.undo.Undo(ctx, func(ctx context.Context) error { return e.Release(ctx, 0) })
}

// remoteHarness says how the suite reaches the service at addr, and how it cuts a client off.
func remoteHarness(addr string, locks *table, ttl time.Duration) conformance.Harness {
	return conformance.Harness{
		TTL: ttl,
		New: func(conformance.T) driver.Backend { return connect(addr) },
		Cut: func(t conformance.T) (driver.Backend, conformance.Fault) {
			cut, fault := conformance.Proxy(t, addr)
			return connect(cut), fault
		},
		Delete: func(_ conformance.T, name string) { locks.remove(name, "") },
	}
}

// A backend for a service across a network: its harness needs Cut, which is short with a Proxy. Some of
// its checks run here.
func Example_network() {
	locks := &table{rows: make(map[string]row)}
	server := httptest.NewServer(serve(locks))
	defer server.Close()
	harness := remoteHarness(server.Listener.Addr().String(), locks, time.Second)
	fmt.Println(conformance.Check(context.Background(), harness, "claims", "exclusion"))
	// Output:
	// <nil>
}
