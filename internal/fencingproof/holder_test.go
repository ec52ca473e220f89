package fencingproof_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/lab"
)

// holderRole is the holder that will be paused. Its arguments are the URL of
// the lock service, the name of the lock, what to write, and where.
func holderRole(p *lab.Parent) {
	fail := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	ctx := context.Background()
	url, name, value := p.Args[0], p.Args[1], p.Args[2]
	client, err := openers.Open(ctx, url, nil)
	for errors.Is(err, locker.ErrUnavailable) { // the machine may be too busy; nobody waits for "ready" for ever
		client, err = openers.Open(ctx, url, nil)
	}
	fail(err)
	var where []*target
	for _, description := range p.Args[3:] {
		opened, err := openTarget(description)
		fail(err)
		where = append(where, opened)
	}
	p.Say("ready")

	p.Hear()
	lease, err := client.Lock(ctx, name)
	for errors.Is(err, locker.ErrUnavailable) || err == nil && lease.Err() != nil {
		// On a machine that is too busy for such a short TTL it is over already, or no
		// quorum answers in time.
		lease, err = client.Lock(ctx, name)
	}
	fail(err)
	token, err := fencing.Of(lease)
	fail(err)
	p.Say("checked %d, valid: %t", token, lease.Err() == nil)

	// Here it is stopped, and it has nothing more to do before its write than to
	// hear that it shall: it does not look again, as a holder does not that is
	// stopped by its machine. Neither does the write end with the lease: what
	// is already in a socket, or in a call that knows no context, cannot.
	p.Hear()
	for _, target := range where {
		p.Say("wrote %s", describe(target.write(ctx, token, value)))
	}
	p.Say("lease %v", lease.Err())
}

// describe writes the end of a write as one line, and outcome reads it.
func describe(err error) string {
	var stale *fencing.StaleError
	switch {
	case err == nil:
		return "landed"
	case errors.As(err, &stale):
		return fmt.Sprintf("stale %d %d %s", stale.Token, stale.Mark, stale.Resource)
	}
	return "error " + err.Error()
}

// outcome returns nil, a *fencing.StaleError, or another error.
func outcome(line string) error {
	var stale fencing.StaleError
	n, _ := fmt.Sscanf(line, "stale %d %d %s", &stale.Token, &stale.Mark, &stale.Resource)
	switch {
	case line == "landed":
		return nil
	case n == 3:
		return &stale
	}
	return errors.New(line)
}

// holder is that child, seen from the test.
type holder struct {
	*lab.Child
	name  string
	token fencing.Token
}

func startHolder(t *testing.T, url, name, value string, where ...string) *holder {
	t.Helper()
	return &holder{Child: lab.StartChild(t, "holder",
		append([]string{url, name, value}, where...)...), name: name}
}

// stopBeforeWrite lets the holder take the lock and look at its lease, and
// returns when it stands still between that and its write.
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

// goOn lets the holder go on, and returns what came of its writes, in the
// order of its targets.
func (h *holder) goOn(t *testing.T, writes int) (outcomes []error, lease string) {
	t.Helper()
	h.Send(t, "write") // it reads that when it runs again
	h.Resume()
	for range writes {
		outcomes = append(outcomes, outcome(h.Expect(t, "wrote", patience)))
	}
	return outcomes, h.Expect(t, "lease", patience)
}
