package httpguard

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
)

// response is a response writer that remembers the status that went out.
//
// What it does not have is found by [http.ResponseController] through Unwrap.
// What makes the server send the status by itself has to be here.
type response struct {
	http.ResponseWriter
	status   int // 0: none yet
	hijacked bool
}

// nothingWritten reports whether the handler has said, by its answer, that it
// has changed nothing. No answer is 200.
func (r *response) nothingWritten() bool {
	return !r.hijacked && r.status >= 400 && r.status < 500
}

// saw remembers a status if it is the final one.
func (r *response) saw(status int) {
	informational := status >= 100 && status < 200 && status != http.StatusSwitchingProtocols
	if r.status == 0 && !informational {
		r.status = status
	}
}

// Unwrap is for [http.ResponseController].
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (r *response) WriteHeader(status int) {
	r.saw(status)
	r.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (r *response) Write(p []byte) (int, error) {
	r.saw(http.StatusOK)
	return r.ResponseWriter.Write(p)
}

// ReadFrom implements [io.ReaderFrom], by which files are sent without a copy.
func (r *response) ReadFrom(src io.Reader) (int64, error) {
	r.saw(http.StatusOK)
	return io.Copy(r.ResponseWriter, src)
}

// FlushError sends the header, and so a status.
func (r *response) FlushError() error {
	err := http.NewResponseController(r.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		r.saw(http.StatusOK)
	}
	return err
}

// Flush implements [http.Flusher], for handlers that do not ask an
// [http.ResponseController].
func (r *response) Flush() { _ = r.FlushError() }

// Hijack implements [http.Hijacker]. What is done on a hijacked connection is
// not known, whatever was answered before.
func (r *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil {
		r.hijacked = true
	}
	return conn, rw, err
}
