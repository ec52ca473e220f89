package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/election"
	"github.com/golockers/locker/internal/lab"
)

// A leader that is cut off from a real service has stopped before the next one leads.
// When it is back, it stands with a lock, a session and a term of its own.
func TestOnServices(t *testing.T) {
	for scheme, start := range map[string]func(t *testing.T) string{
		"redis": func(t *testing.T) string { return lab.StartRedis(t).Addr() },
		"etcd":  func(t *testing.T) string { return lab.StartEtcd(t, 1).Addrs()[0] },
	} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			address := start(t)
			proxy := lab.StartProxy(t, address)
			events := make(chan event, 100)
			leads := stand(t, events, "a", scheme+"://"+proxy.Addr())
			first := next(t, events, "a leads")
			look := open(t, scheme+"://"+address)
			leader, err := look.Inspect(t.Context(), "boss")
			require.NoError(t, err)
			assert.Equal(t, []any{"a", first.term}, []any{leader.Label, leader.Token})
			b := stand(t, events, "b", scheme+"://"+address)
			assert.False(t, b.IsLeader())

			proxy.Set(lab.Drop)
			next(t, events, "a ends") // and before another leads
			assert.False(t, leads.IsLeader())
			second := next(t, events, "b leads")
			assert.Greater(t, second.term, first.term)

			proxy.Set(lab.Pass)
			require.True(t, b.StepDown(time.Minute))
			next(t, events, "b ends")
			assert.Greater(t, next(t, events, "a leads").term, second.term)
		})
	}
}

type event struct {
	what string
	term uint64
}

func open(t *testing.T, url string) *locker.Client {
	c, err := backends.Openers.Open(t.Context(), url, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func stand(t *testing.T, events chan<- event, name, url string) *election.Candidate {
	c := election.New(open(t, url), "boss", &election.Options{Address: name, TTL: 2 * time.Second})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- c.Run(ctx, func(ctx context.Context, term uint64) error {
			events <- event{name + " leads", term}
			<-ctx.Done()
			events <- event{name + " ends", term}
			return nil
		})
	}()
	t.Cleanup(func() { stop(); assert.ErrorIs(t, <-done, context.Canceled) })
	return c
}

func next(t *testing.T, events <-chan event, what string) event {
	t.Helper()
	select {
	case e := <-events:
		require.Equal(t, what, e.what)
		return e
	case <-time.After(30 * time.Second):
		t.Fatalf("waited in vain for %q", what)
		return event{}
	}
}
