// Package httpguard carries fencing tokens over HTTP, from the holder of a lock to
// the server that owns the resource, and makes that server refuse stale tokens.
//
// A token is sent in the header Fencing-Token, in decimal digits. The client holds the lock:
//
//	client := &http.Client{Transport: &httpguard.Transport{}}
//	err := fencing.Do(ctx, locks, "report/7", func(ctx context.Context) error {
//		req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, body)
//		…
//		resp, err := client.Do(req)
//		…
//		defer resp.Body.Close()
//		if err := httpguard.CheckResponse(resp); err != nil {
//			return err // refused
//		}
//		if resp.StatusCode >= 300 {
//			return fmt.Errorf("PUT: %s", resp.Status) // failed
//		}
//		return nil
//	})
//
// and the server owns the state that is written:
//
//	resource := func(r *http.Request) string { return "report/" + r.PathValue("id") }
//	mux.Handle("PUT /report/{id}", httpguard.Handler(save, resource, &httpguard.Options{Guard: &guard}))
//
// # The answers of the server
//
// The server refuses a request whose method is not safe (all but GET, HEAD, OPTIONS
// and TRACE)
//
//   - without a token: 428 Precondition Required;
//   - with a malformed token, or with more than one: 400 Bad Request;
//   - with a token lower than the mark of its resource: 412 Precondition Failed.
//
// 412 and 428 have other uses too; this package's refusals have the header [RefusedHeader].
// [CheckResponse] converts these, and no others, to the errors of package fencing.
//
// # With a Guard, and without
//
// Options.Guard is for state in the memory of the one process that owns it: requests to one
// resource are handled one at a time. If the state is in a database or another store, leave
// the Guard out: the Handler then only puts the token into the request's context, for the
// guard of the store ([fencing.TokenFor] with the resource's name), whose refusals
// [WriteError] sends back.
//
// # Raise before you read
//
// A request with a safe method raises no mark. A holder that reads, computes and writes must read with
// an unsafe method, such as a POST whose handler answers like a GET. With a Guard, no earlier holder
// can write after that. Without one, the handler first calls Raise of the store's guard.
//
// # What it relies on
//
// Every write must come this way, and none with a safe method. Clients must be trusted: a client that
// sends too high a token keeps out all others, until [fencing.Guard.Forget]. Let the server first check
// who may write.
//
// After no answer, or one with status 500 or above, it is unknown whether the write happened. The same
// holder may repeat the request with the same token, but the first request may still arrive after the
// second.
package httpguard
