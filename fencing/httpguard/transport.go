package httpguard

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
)

// Header is the header that a fencing token travels in, once per request, as
// 1 to 20 decimal digits.
const Header = "Fencing-Token"

// The headers of a request that raises the mark first, and of the answer to it.
const (
	raiseHeader  = "Fencing-Raise"
	raisedHeader = "Fencing-Raised"
)

// RaiseFirst makes req, whose method is safe, one that raises the mark of its
// resource before it is handled: what it answers was read after that, and no
// earlier holder can write any more. A holder that reads, computes and writes
// reads so. It is sent by a [Transport] only with a token. Ask [CheckResponse]
// about the answer, which also finds a server that has not raised the mark.
func RaiseFirst(req *http.Request) {
	req.Header.Set(raiseHeader, "1")
	req.Header.Set("Cache-Control", "no-cache") // whose answer would be older
}

// Transport is an [http.RoundTripper] that sends the fencing token of each
// request's context along (see [fencing.Do] and [fencing.NewContext]). A
// request of an unsafe method without one is not sent: its error matches
// [fencing.ErrMissing]. The zero value is ready. It is as safe for use from
// many goroutines as its Base is.
//
// A token that the caller has put into the header by hand, as a proxy that
// passes requests on does, is checked and left as it is. One that is not that
// of the context is an error.
//
// Where the server redirects to, the token is sent too. It is no secret.
type Transport struct {
	// Base sends the requests. nil: http.DefaultTransport.
	Base http.RoundTripper

	// Optional lets requests without a token pass: for a client that also
	// talks to servers without a guard. A server with one refuses them (428).
	Optional bool

	// Lock says the token of which lock a request is sent with, where contexts may
	// have those of several. nil, or "": of the only one.
	Lock func(req *http.Request) string
}

// RoundTrip implements [http.RoundTripper]. What a guard on the server refused
// is a response like any other: see [CheckResponse].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	token, err := t.token(req)
	if err != nil {
		// A RoundTripper closes the body, whatever happens.
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	if token != 0 {
		// A copy: the request is its caller's.
		req = req.Clone(req.Context())
		if req.Header == nil {
			req.Header = http.Header{}
		}
		req.Header.Set(Header, token.String())
	}
	return base.RoundTrip(req)
}

// CloseIdleConnections is Base's, if it has that: [http.Client] asks for it.
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
		return 0, fmt.Errorf("httpguard: the request's header has fencing token %d and its context %d: leave the header alone: %w", byHand, token, locker.ErrInvalid)
	}
	return byHand, nil
}

func (t *Transport) fromContext(req *http.Request) (fencing.Token, error) {
	if t.Lock != nil {
		if lock := t.Lock(req); lock != "" {
			return fencing.TokenFor(req.Context(), lock)
		}
	}
	token, err := fencing.FromContext(req.Context())
	if err != nil && !errors.Is(err, fencing.ErrMissing) {
		err = fmt.Errorf("httpguard: set Transport.Lock: %w", err)
	}
	return token, err
}

// fromHeader returns the one token of a header. The error matches
// fencing.ErrMissing if there is none, and locker.ErrInvalid if it is no token
// or there is more than one: which of them was meant is not for a guess.
func fromHeader(h http.Header) (fencing.Token, error) {
	values := h.Values(Header)
	switch len(values) {
	case 0:
		return 0, fmt.Errorf("%w: the request has no header %s", fencing.ErrMissing, Header)
	case 1:
		return fencing.Parse(values[0])
	}
	return 0, fmt.Errorf("the header %s is there %d times: want it once: %w", Header, len(values), locker.ErrInvalid)
}

// safe reports whether a method is one that asks for no change (RFC 9110,
// 9.2.1). Methods are case-sensitive: a "get" is none of these.
func safe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}
