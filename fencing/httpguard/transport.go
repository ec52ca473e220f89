package httpguard

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/carried"
)

// Header is the header that a fencing token travels in, once per request, as
// 1 to 20 decimal digits.
const Header = "Fencing-Token"

// The headers of a request that raises the mark first, and of the answer to it.
const (
	raiseHeader  = "Fencing-Raise"
	raisedHeader = "Fencing-Raised"
)

// RaiseFirst makes the server raise the mark of req's resource before it handles req,
// whose method must be safe. The answer was then read after the mark was raised, and no
// earlier holder can write any more. A holder that reads, computes and writes reads
// with such a request. A [Transport] sends it only with a token. [CheckResponse] also
// reports a server that has not raised the mark.
func RaiseFirst(req *http.Request) {
	req.Header.Set(raiseHeader, "1")
	req.Header.Set("Cache-Control", "no-cache") // a cached answer would be older than the mark
}

// Transport is an [http.RoundTripper] that sends the fencing token of each request's
// context along (see [fencing.Do] and [fencing.NewContext]). It does not send a request
// with an unsafe method and without a token: the error matches [fencing.ErrMissing]. The
// zero value is ready to use. A Transport may be used from many goroutines if its Base
// may.
//
// If the caller has put a token into the header by hand, as a proxy does, Transport
// checks it and leaves it. It is an error if the context has another token.
//
// After a redirect the token is sent to the new address too. It is no secret.
type Transport struct {
	// Base sends the requests. nil: http.DefaultTransport.
	Base http.RoundTripper

	// Optional also sends requests without a token, for a client that talks to servers
	// without a guard, too. A server with a guard refuses them (428).
	Optional bool

	// Lock names the lock whose token a request carries, if contexts may have tokens
	// of several locks. nil, or "": the only one.
	Lock func(req *http.Request) string
}

// RoundTrip implements [http.RoundTripper]. The refusal of a guard on the server is a
// response, not an error: see [CheckResponse].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	token, err := t.token(req)
	if err != nil {
		// A RoundTripper always closes the body.
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	if token != 0 {
		// A copy: a RoundTripper must not change the caller's request.
		req = req.Clone(req.Context())
		if req.Header == nil {
			req.Header = http.Header{}
		}
		req.Header.Set(Header, token.String())
	}
	return base.RoundTrip(req)
}

// CloseIdleConnections calls that method of Base, if there is one; [http.Client] calls
// it.
func (t *Transport) CloseIdleConnections() {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if c, ok := base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// token returns the token to send, 0 for none.
func (t *Transport) token(req *http.Request) (fencing.Token, error) {
	token, err := t.fromContext(req)
	raise := req.Header.Get(raiseHeader) != ""
	if len(req.Header.Values(Header)) == 0 {
		needless := safe(req.Method) || t.Optional && errors.Is(err, fencing.ErrMissing)
		if err != nil && needless && !raise {
			return 0, nil
		}
		return token, err
	}
	byHand, handErr := fromHeader(req.Header)
	switch {
	case handErr != nil:
		return 0, fmt.Errorf("httpguard: the request's own header: %w", handErr)
	case err == nil && token != byHand:
		return 0, fmt.Errorf("httpguard: the request's header has fencing token %d and its context %d: leave the "+
			"header alone: %w", byHand, token, locker.ErrInvalid)
	}
	return byHand, nil
}

func (t *Transport) fromContext(req *http.Request) (fencing.Token, error) {
	lock := ""
	if t.Lock != nil {
		lock = t.Lock(req)
	}
	token, err := carried.Outgoing(req.Context(), lock)
	if err != nil && lock == "" && !errors.Is(err, fencing.ErrMissing) {
		err = fmt.Errorf("httpguard: set Transport.Lock: %w", err)
	}
	return token, err
}

func fromHeader(h http.Header) (fencing.Token, error) {
	return carried.Incoming("header "+Header, h.Values(Header))
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
