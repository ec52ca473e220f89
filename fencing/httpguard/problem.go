package httpguard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/golockers/locker/fencing"
)

// The types of the problems (RFC 9457) by which a refusal is known for one of
// this package. As URLs they lead to this documentation.
const (
	// TypeStale is the type of a 412: the token is lower than the mark. The
	// body also has resource, token and mark; of a resource with a name longer
	// than 1 KiB the beginning.
	TypeStale = "https://pkg.go.dev/github.com/golockers/locker/fencing/httpguard#TypeStale"

	// TypeMissing is the type of a 428: the request has no token.
	TypeMissing = "https://pkg.go.dev/github.com/golockers/locker/fencing/httpguard#TypeMissing"
)

const (
	problemJSON = "application/problem+json"
	// maxProblem is how much of a body CheckResponse reads.
	maxProblem = 64 << 10
	// maxResource is how much of a name is written, so that a refusal is never longer
	// than what is read of it: the name is quoted in the detail once more, and JSON
	// makes up to six bytes of one.
	maxResource = 1 << 10
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

// WriteError answers a request with the refusal that err is: 412 if err matches
// [fencing.ErrStale], 428 if it matches [fencing.ErrMissing]. Otherwise it
// writes nothing and returns false. It is for handlers that have the token
// checked by the guard of a store:
//
//	if err := save(r.Context(), …); httpguard.WriteError(w, err) {
//		return
//	}
//
// The body has what the [*fencing.StaleError] in err says, and nothing of what
// is wrapped around it.
func WriteError(w http.ResponseWriter, err error) bool {
	p := refusal("", err)
	if p == nil {
		return false
	}
	p.write(w)
	return true
}

// refusal returns what to answer to a token that was refused with err, nil if
// err is something else.
func refusal(resource string, err error) *problem {
	var stale *fencing.StaleError
	switch {
	case errors.As(err, &stale):
		// Shortened before it is quoted: the numbers come after the name.
		told := &fencing.StaleError{Resource: shortened(stale.Resource), Token: stale.Token, Mark: stale.Mark}
		return &problem{
			Type: TypeStale, Title: "Stale fencing token", Status: http.StatusPreconditionFailed, Detail: told.Error(),
			Resource: told.Resource, Token: told.Token, Mark: told.Mark,
		}
	case errors.Is(err, fencing.ErrStale):
		return &problem{
			Type: TypeStale, Title: "Stale fencing token", Status: http.StatusPreconditionFailed,
			Detail: "The resource has seen a higher fencing token than that of this request.", Resource: resource,
		}
	case errors.Is(err, fencing.ErrMissing):
		return &problem{
			Type: TypeMissing, Title: "No fencing token", Status: http.StatusPreconditionRequired,
			Detail: "A write needs the fencing token of the lock that it is done under, in the header " + Header + ".", Resource: resource,
		}
	}
	return nil
}

// plain is a problem without a type: then the title is that of the status.
func plain(status int, resource, detail string) *problem {
	return &problem{Title: http.StatusText(status), Status: status, Detail: detail, Resource: resource}
}

// shortened returns name, or the beginning of one that is longer than maxResource.
func shortened(name string) string {
	const more = "…"
	if len(name) > maxResource {
		name = strings.ToValidUTF8(name[:maxResource-len(more)], "") + more
	}
	return name
}

func (p *problem) write(w http.ResponseWriter) {
	p.Resource = shortened(p.Resource)
	h := w.Header()
	// What a handler has prepared was meant for another body.
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified"} {
		h.Del(name)
	}
	h.Set("Content-Type", problemJSON)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	// The client may be gone; there is nobody else to tell.
	_ = json.NewEncoder(w).Encode(p)
}

// CheckResponse returns the refusal of a guard on the server that resp is: a
// [*fencing.StaleError], or an error that matches [fencing.ErrMissing]. For
// every other response it returns nil, whatever its status: look at that
// afterwards.
//
// If resp answers a request of [RaiseFirst] with a success, and does not say that
// the mark was raised, the error matches [errors.ErrUnsupported].
//
// It reads no body but those of a 412 or 428 that may be such a refusal, of
// those 64 KiB at most, and resp.Body can be read from its beginning after it. The
// caller closes it, as always.
func CheckResponse(resp *http.Response) error {
	p, ok := readProblem(resp)
	if !ok {
		asked := resp.Request != nil && resp.Request.Header.Get(raiseHeader) != ""
		if asked && resp.StatusCode < 300 && resp.Header.Get(raisedHeader) == "" {
			return fmt.Errorf("httpguard: the server answered without having raised the mark: %w", errors.ErrUnsupported)
		}
		return nil
	}
	switch {
	case p.Type == TypeStale && resp.StatusCode == http.StatusPreconditionFailed:
		token, err1 := fencing.Parse(p.Token)
		mark, err2 := fencing.Parse(p.Mark)
		if err1 != nil || err2 != nil {
			return fmt.Errorf("httpguard: the server refused the write to %q: %w (it does not say by which mark)", p.Resource, fencing.ErrStale)
		}
		return &fencing.StaleError{Resource: p.Resource, Token: token, Mark: mark}
	case p.Type == TypeMissing && resp.StatusCode == http.StatusPreconditionRequired:
		return fmt.Errorf("httpguard: the server refused the write to %q: %w: send the request through a Transport, with the token in its context", p.Resource, fencing.ErrMissing)
	}
	return nil
}

// answered is a problem as it comes in. Its numbers are read one by one: a
// refusal with odd ones is a refusal still.
type answered struct{ Type, Resource, Token, Mark string }

// readProblem returns the problem that resp may have, and puts back what it
// read of the body.
func readProblem(resp *http.Response) (p answered, ok bool) {
	if resp.StatusCode != http.StatusPreconditionFailed && resp.StatusCode != http.StatusPreconditionRequired || resp.Body == nil {
		return p, false
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != problemJSON {
		return p, false
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	resp.Body = unread(text, err, resp.Body)
	return p, err == nil && json.Unmarshal(text, &p) == nil
}

// unread returns a body from which text is read again, then err, or if that
// is nil the rest of body.
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
