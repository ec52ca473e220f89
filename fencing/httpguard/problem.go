package httpguard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/carried"
)

// The types of the problems (RFC 9457) that mark a refusal of this package. As URLs
// they lead to this documentation.
const (
	// TypeStale is the type of a 412: the token is lower than the mark. The body also
	// has resource, token and mark.
	TypeStale = "https://pkg.go.dev/github.com/golockers/locker/fencing/httpguard#TypeStale"

	// TypeMissing is the type of a 428: the request has no token.
	TypeMissing = "https://pkg.go.dev/github.com/golockers/locker/fencing/httpguard#TypeMissing"
)

const (
	problemJSON = "application/problem+json"
	// maxProblem is how many bytes of a body CheckResponse reads: far more than the names of resources can make.
	maxProblem = 64 << 10
)

// problem is the body of a refusal. Tokens have 64 bits, so they are strings.
type problem struct {
	Type     string        `json:"type,omitempty"`
	Title    string        `json:"title"`
	Status   int           `json:"status"`
	Detail   string        `json:"detail"`
	Resource string        `json:"resource,omitempty"`
	Token    fencing.Token `json:"token,omitzero"`
	Mark     fencing.Token `json:"mark,omitzero"`
}

// WriteError answers a request with a refusal: 412 if err matches [fencing.ErrStale],
// 428 if it matches [fencing.ErrMissing]. Otherwise it writes nothing and returns
// false. It is for handlers that check the token with the guard of a store:
//
//	if err := save(r.Context(), …); httpguard.WriteError(w, err) {
//		return
//	}
//
// The body has the [*fencing.StaleError] in err, and nothing of the errors around it.
func WriteError(w http.ResponseWriter, err error) bool {
	p := refusal("", err)
	if p == nil {
		return false
	}
	p.write(w)
	return true
}

// refusal returns the answer to a token that was refused with err, or nil if err is
// another error.
func refusal(resource string, err error) *problem {
	var stale *fencing.StaleError
	switch {
	case errors.As(err, &stale):
		return &problem{
			Type: TypeStale, Title: "Stale fencing token", Status: http.StatusPreconditionFailed, Detail: stale.Error(),
			Resource: stale.Resource, Token: stale.Token, Mark: stale.Mark,
		}
	case errors.Is(err, fencing.ErrStale):
		return &problem{
			Type: TypeStale, Title: "Stale fencing token", Status: http.StatusPreconditionFailed,
			Detail: "The resource has seen a higher fencing token than that of this request.", Resource: resource,
		}
	case errors.Is(err, fencing.ErrMissing):
		return &problem{
			Type: TypeMissing, Title: "No fencing token", Status: http.StatusPreconditionRequired,
			Detail:   "A write needs the fencing token of its lock, in the header " + Header + ".",
			Resource: resource,
		}
	}
	return nil
}

// plain is a problem without a type; its title is that of the status.
func plain(status int, resource, detail string) *problem {
	return &problem{Title: http.StatusText(status), Status: status, Detail: detail, Resource: resource}
}

func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	// Headers that a handler has set for another body.
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified"} {
		h.Del(name)
	}
	h.Set("Content-Type", problemJSON)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	// If this fails, the client has gone.
	_ = json.NewEncoder(w).Encode(p)
}

// CheckResponse returns an error if resp is the refusal of a guard on the server: a
// [*fencing.StaleError], or an error that matches [fencing.ErrMissing]. For every other
// response it returns nil, whatever its status: check the status afterwards.
//
// If resp answers a request of [RaiseFirst] with a success but does not say that the
// mark was raised, the error matches [errors.ErrUnsupported].
//
// CheckResponse reads the body only of a 412 or 428 that may be a refusal, and at most
// 64 KiB of it. Afterwards resp.Body can still be read from its beginning. The caller
// closes it, as always.
func CheckResponse(resp *http.Response) error {
	p, ok := readProblem(resp)
	if !ok {
		asked := resp.Request != nil && resp.Request.Header.Get(raiseHeader) != ""
		if asked && resp.StatusCode < 300 && resp.Header.Get(raisedHeader) == "" {
			return fmt.Errorf("httpguard: the server answered without having raised the mark: %w",
				errors.ErrUnsupported)
		}
		return nil
	}
	switch {
	case p.Type == TypeStale && resp.StatusCode == http.StatusPreconditionFailed:
		return carried.Refused(p.Resource, p.Token, p.Mark)
	case p.Type == TypeMissing && resp.StatusCode == http.StatusPreconditionRequired:
		return fmt.Errorf("httpguard: the server refused the write to %q: %w: send the request through a "+
			"Transport, with the token in its context", p.Resource, fencing.ErrMissing)
	}
	return nil
}

// answered is a problem that a client reads. Its numbers are parsed later: a refusal
// with malformed numbers is still a refusal.
type answered struct{ Type, Resource, Token, Mark string }

// readProblem returns the problem in the body of resp, if there is one, and leaves
// resp.Body as it was.
func readProblem(resp *http.Response) (p answered, ok bool) {
	if resp.StatusCode != http.StatusPreconditionFailed &&
		resp.StatusCode != http.StatusPreconditionRequired || resp.Body == nil {
		return p, false
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != problemJSON {
		return p, false
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	resp.Body = unread(text, err, resp.Body)
	return p, err == nil && json.Unmarshal(text, &p) == nil
}

// unread returns a body that yields text again and then err, or, if err is nil, the
// rest of body.
func unread(text []byte, err error, body io.ReadCloser) io.ReadCloser {
	rest := io.Reader(body)
	if err != nil {
		rest = failing{err}
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), rest), body}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
