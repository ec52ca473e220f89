package httpguard

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/carried"
)

// Header is the header of a fencing token: once per request, 1 to 20 decimal digits.
const Header = "Fencing-Token"

// Transport is an [http.RoundTripper] that sends the fencing token of each request's context (see
// [fencing.Do] and [fencing.NewContext]). It does not send a request that has an unsafe method and no
// token: the error matches [fencing.ErrMissing]. The zero value is ready to use. A Transport may be
// used from many goroutines if its Base may.
//
// A header set by the caller, as by a proxy, is sent unchanged. After a redirect the token is also sent
// to the new address; it is no secret.
type Transport struct {
	// Base sends the requests. nil: http.DefaultTransport.
	Base http.RoundTripper

	// Lock names the lock whose token a request carries, if contexts may have tokens
	// of several locks. nil, or "": the only one.
	Lock func(req *http.Request) string
}

// RoundTrip implements [http.RoundTripper]. The refusal of a guard on the server is a
// response, not an error: see [CheckResponse].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if len(req.Header.Values(Header)) > 0 {
		return t.base().RoundTrip(req)
	}
	lock := ""
	if t.Lock != nil {
		lock = t.Lock(req)
	}
	token, err := carried.Outgoing(req.Context(), lock)
	switch {
	case err == nil:
		// A copy: a RoundTripper must not change the caller's request.
		req = req.Clone(req.Context())
		if req.Header == nil {
			req.Header = http.Header{}
		}
		req.Header.Set(Header, token.String())
	case !safe(req.Method):
		// A RoundTripper always closes the body.
		if req.Body != nil {
			_ = req.Body.Close()
		}
		if lock == "" && !errors.Is(err, fencing.ErrMissing) {
			err = fmt.Errorf("httpguard: set Transport.Lock: %w", err)
		}
		return nil, err
	}
	return t.base().RoundTrip(req)
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// CloseIdleConnections calls the method of that name of Base, if it has one. [http.Client] calls it.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// safe reports whether a method is safe (RFC 9110, 9.2.1). Methods are case-sensitive:
// "get" is not safe.
func safe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}
