package fencingproof_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/lab"
)

// holderRole is the holder that will be paused. Its arguments are the URL of the lock service, the name of the lock,
// and the URL of the resource's server.
func holderRole(p *lab.Parent) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	ctx, name := context.Background(), p.Args[1]
	client, err := insist(func() (*locker.Client, error) { return openers.Open(ctx, p.Args[0], nil) })
	must(err)
	p.Say("ready")

	p.Hear()
	lease, err := insist(func() (*locker.Lease, error) {
		lease, err := client.Lock(ctx, name)
		if err == nil {
			err = lease.Err()
		}
		return lease, err
	})
	must(err)
	token, err := fencing.Of(lease)
	must(err)
	p.Say("checked %d, valid: %t", token, lease.Err() == nil)

	// Here it is stopped, and it has nothing more to do before its write than to hear that it shall: it does not look
	// again, as a holder does not that is stopped by its machine. Neither does the write end with the lease: what is
	// already in a socket, or in a call that knows no context, cannot.
	p.Hear()
	ctx = fencing.NewContext(ctx, name, token)
	p.Say("plain %v", put(ctx, p.Args[2]+"/plain/"+name, "first"))
	p.Say("guarded %v", put(ctx, p.Args[2]+"/guarded/"+name, "first"))
	p.Say("lease %v", lease.Err())
}

// holder is that child, seen from the test.
type holder struct {
	*lab.Child
	name  string
	token fencing.Token
}

func startHolder(t *testing.T, url, name string, r *resource) *holder {
	t.Helper()
	return &holder{Child: lab.StartChild(t, "holder", url, name, r.URL), name: name}
}

// stopBeforeWrite lets the holder take the lock and look at its lease, and returns when it stands still between that
// and its write.
func (h *holder) stopBeforeWrite(t *testing.T) {
	t.Helper()
	h.Expect(t, "ready", patience)
	h.Send(t, "lock")
	said := h.Expect(t, "checked", patience)
	h.Pause()
	number, valid, _ := strings.Cut(said, ", ")
	require.Equal(t, "valid: true", valid, "it must have found its lease valid")
	var err error
	h.token, err = fencing.Parse(number)
	require.NoError(t, err)
}

// goOn lets the holder go on, checks that its write to the plain value landed and that the one to the guarded value
// was refused by mark, and returns what it then says of its lease.
func (h *holder) goOn(t *testing.T, r *resource, mark fencing.Token) (lease string) {
	t.Helper()
	before := r.get("/guarded/" + h.name)
	h.Send(t, "write") // it reads that when it runs again
	h.Resume()
	require.Equal(t, "<nil>", h.Expect(t, "plain", patience))
	require.Equal(t, "first", r.get("/plain/"+h.name), "a lock alone prevents nothing: or this proves nothing")
	refusal := &fencing.StaleError{Resource: h.name, Token: h.token, Mark: mark}
	require.Equal(t, refusal.Error(), h.Expect(t, "guarded", patience), "the holder is told, with both numbers")
	require.Equal(t, before, r.get("/guarded/"+h.name))
	defer h.Kill()
	return h.Expect(t, "lease", patience)
}
