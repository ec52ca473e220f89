// Package httpguard carries fencing tokens over HTTP, from the holder of a lock to
// the server that owns the resource, and has that server refuse stale ones.
//
// A token travels in the header Fencing-Token, as its decimal digits. The client
// holds the lock:
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
// and the server owns what is written:
//
//	resource := func(r *http.Request) string { return "report/" + r.PathValue("id") }
//	mux.Handle("PUT /report/{id}", httpguard.Handler(save, resource, &httpguard.Options{Guard: &guard}))
//
// # What the server answers
//
// To a request whose method is not safe (all but GET, HEAD, OPTIONS and TRACE), and
// to a safe one of [RaiseFirst]:
//
//   - without a token: 428 Precondition Required;
//   - with something that is no token, or with more than one: 400 Bad Request;
//   - with a token lower than the mark of its resource: 412 Precondition Failed.
//
// The body is of type application/problem+json (RFC 9457); resource, token and mark
// in it are strings. 412 and 428 have other uses too; those of this package have
// [TypeStale] or [TypeMissing] as their type, and [CheckResponse] makes the errors
// of package fencing of them and of no others.
//
// # With a Guard, and without
//
// With Options.Guard, the check, the handler and the move of the mark are one
// step: requests to one resource are handled one at a time. The Guard and its
// marks are in the memory of one process, so that is for state which lives and
// ends with that process, and of which there is one process: two servers
// behind a load balancer have two Guards, and a restarted one has forgotten.
//
// Where the state is in a database or in another store, leave the Guard out.
// The Handler then only carries the token into the request's context, where the
// guard of the store finds it by [fencing.TokenFor] with the resource's name; its
// refusal goes back by [WriteError], and its Raise goes into Options.Raise.
//
// # What it rests on
//
// On every write coming this way and none coming by a safe method, and on
// clients that may be believed: one that sends a token which is too high keeps
// out all others, until [fencing.Guard.Forget]. Put the Handler behind whatever
// says who may write.
//
// After a refusal its holder may do nothing more. An answer that never came,
// or 500 and above, leaves unknown whether the write happened, as with any
// request. The same holder may send it again with the same token, but tokens
// do not order the requests of one holder among each other: the first may
// still arrive after the second.
package httpguard
