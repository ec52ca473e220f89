package redisconn

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// While questions that hang have all places, the others end with their callers, and nothing of them stays.
func TestAQuestionWithoutAPlaceEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Conn{timeout: time.Second, background: make(chan struct{})} // no place
		n.ctx, n.cancel = context.WithCancelCause(t.Context())
		ask := func(ctx context.Context) error {
			_, err := Ask(ctx, n, "ask", func(context.Context) (int, error) { panic("it is asked") })
			n.goroutines.Wait()
			return err
		}
		require.ErrorIs(t, ask(t.Context()), ErrTimeout)
		ctx, leave := context.WithTimeout(t.Context(), time.Second/2)
		defer leave()
		require.ErrorIs(t, ask(ctx), context.DeadlineExceeded)
		n.End()
		assert.ErrorIs(t, ask(t.Context()), ErrClosed)
	})
}
