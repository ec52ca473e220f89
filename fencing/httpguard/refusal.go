package httpguard

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/carried"
)

// RefusedHeader is set in refusals, and in no other answer: to "stale" with a 412, and "missing" with a
// 428. A stale token and the mark are in the headers Fencing-Token and Fencing-Mark, and the name of
// the resource, escaped as in a URL query, in Fencing-Resource.
const RefusedHeader = "Fencing-Refused"

const (
	stale, missing = "stale", "missing"

	markHeader     = "Fencing-Mark"
	resourceHeader = "Fencing-Resource"
)

// WriteError answers a request with a refusal: 412 if err matches [fencing.ErrStale],
// 428 if it matches [fencing.ErrMissing]. Otherwise it writes nothing and returns
// false. It is for handlers that check the token with the guard of a store:
//
//	if err := save(r.Context(), …); httpguard.WriteError(w, err) {
//		return
//	}
//
// The answer describes the [*fencing.StaleError] in err, without the errors that wrap it.
func WriteError(w http.ResponseWriter, err error) bool {
	var refused *fencing.StaleError
	h := w.Header()
	switch {
	case errors.As(err, &refused):
		h.Set(Header, refused.Token.String())
		h.Set(markHeader, refused.Mark.String())
		if fencing.CheckName(refused.Resource) == nil {
			h.Set(resourceHeader, url.QueryEscape(refused.Resource))
		}
		refuse(w, stale, http.StatusPreconditionFailed, refused.Error())
	case errors.Is(err, fencing.ErrStale):
		refuse(w, stale, http.StatusPreconditionFailed, fencing.ErrStale.Error())
	case errors.Is(err, fencing.ErrMissing):
		refuse(w, missing, http.StatusPreconditionRequired,
			"a write needs the fencing token of its lock, in the header "+Header)
	default:
		return false
	}
	return true
}

func refuse(w http.ResponseWriter, why string, status int, text string) {
	w.Header().Set(RefusedHeader, why)
	fail(w, status, text)
}

// fail answers with a text, without the headers that a handler may have set for another answer.
func fail(w http.ResponseWriter, status int, text string) {
	for _, name := range []string{"Content-Encoding", "Etag", "Last-Modified"} {
		w.Header().Del(name)
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, text, status)
}

// CheckResponse returns an error if resp is the refusal of a guard on the server: a
// [*fencing.StaleError], or an error that matches [fencing.ErrMissing]. For every other
// response it returns nil, whatever its status: check the status afterwards. It does not
// read the body.
func CheckResponse(resp *http.Response) error {
	h := resp.Header
	switch refused := h.Get(RefusedHeader); {
	case refused == stale && resp.StatusCode == http.StatusPreconditionFailed:
		resource, _ := url.QueryUnescape(h.Get(resourceHeader)) // for people only
		return carried.Refused(resource, h.Get(Header), h.Get(markHeader))
	case refused == missing && resp.StatusCode == http.StatusPreconditionRequired:
		return fmt.Errorf("httpguard: the server refused the write: %w: send the request through a Transport, with the "+
			"token in its context", fencing.ErrMissing)
	}
	return nil
}
