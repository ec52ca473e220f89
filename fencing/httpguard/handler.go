package httpguard

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/carried"
)

// Options are the settings of a [Handler]. The zero value, or nil, means the
// defaults.
type Options struct {
	// Guard checks the tokens, and makes check and write one atomic step. Handlers that write the same
	// resources share one Guard. nil: tokens are only put into the request's context.
	Guard *fencing.Guard

	// BodyAhead is how many bytes of a body are read into memory before the request's turn. Without
	// that, a client that stops in the middle of its body would make all others wait during its turn.
	// The handler reads the rest during the turn: if bodies are longer, set the server's ReadTimeout.
	// 0: 1 MiB. Negative: nothing is read ahead, for handlers that answer before they have read their
	// body (full duplex, gRPC streams). It has no effect without a Guard.
	BodyAhead int64

	_ struct{}
}

const bodyAhead = 1 << 20

// Handler returns a handler that passes requests to next with their fencing token in the request's
// context ([fencing.FromContext]). It refuses the requests that the package documentation lists.
// Requests with a safe method pass with or without a token; their token is not compared with a mark,
// and they do not wait.
//
// resource names the state that the request writes; see [fencing.Guard.Do]. It is required. The path
// would be a poor default: one thing often has several paths, and each would get its own mark. If names
// depend on client input, see Keep of [fencing.Guard]. If resource returns an invalid name
// ([fencing.CheckName]), the answer is 500: the server does not know what it would write.
//
// With a Guard, next handles the requests to one resource one at a time, and only if the token is not
// lower than the mark. The mark then moves, whatever next answers: requests of earlier holders come too
// late in any case.
//
// A request's turn ends when next returns. Work that next starts and does not wait for is not
// protected: a goroutine, a hijacked connection, an inner [http.TimeoutHandler] that has given up (put
// it around this Handler instead). If the context of a request ends while the request waits for its
// turn, for example because its client has gone, the request is not handled, and the answer is 503.
//
// Handler panics if next or resource is nil.
func Handler(next http.Handler, resource func(*http.Request) string, opts *Options) http.Handler {
	if next == nil || resource == nil {
		panic("httpguard: Handler needs a handler and a function that names the resource")
	}
	h := &handler{next: next, resource: resource}
	if opts != nil {
		h.opts = *opts
	}
	if h.opts.BodyAhead == 0 {
		h.opts.BodyAhead = bodyAhead
	}
	return h
}

type handler struct {
	next     http.Handler
	resource func(*http.Request) string
	opts     Options
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, err := carried.Incoming("header "+Header, r.Header.Values(Header))
	reads := safe(r.Method)
	if reads && errors.Is(err, fencing.ErrMissing) {
		h.next.ServeHTTP(w, r)
		return
	}
	resource := h.resource(r)
	switch nameless := !reads && fencing.CheckName(resource) != nil; {
	case nameless:
		fail(w, http.StatusInternalServerError, "the server has no name for what this request writes to")
	case WriteError(w, err): // no token
	case err != nil:
		fail(w, http.StatusBadRequest, err.Error())
	case reads:
		h.next.ServeHTTP(w, carrying(r, resource, token))
	default:
		h.guarded(w, r, resource, token)
	}
}

func carrying(r *http.Request, resource string, token fencing.Token) *http.Request {
	return r.WithContext(fencing.NewContext(r.Context(), resource, token))
}

func (h *handler) guarded(w http.ResponseWriter, r *http.Request, resource string, token fencing.Token) {
	body := r.Body
	if h.opts.Guard != nil {
		// Marks only rise, so a stale token need not wait for its turn.
		mark, _ := h.opts.Guard.Mark(resource)
		if WriteError(w, fencing.Admit(resource, token, mark)) {
			return
		}
		if h.opts.BodyAhead > 0 && body != nil && body != http.NoBody {
			text, err := io.ReadAll(io.LimitReader(body, h.opts.BodyAhead))
			rest := io.Reader(body)
			if err != nil {
				rest = failing{err} // the handler gets the error when it reads that far
			}
			body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(bytes.NewReader(text), rest), body}
		}
	}
	// The copy is made after the body was read, so its trailers are in it.
	r = carrying(r, resource, token)
	r.Body = body

	err := carried.Handle(r.Context(), h.opts.Guard, resource, token, func() { h.next.ServeHTTP(w, r) })
	if err != nil && !WriteError(w, err) {
		fail(w, http.StatusServiceUnavailable, "given up while it waited for its turn: nothing was written")
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
