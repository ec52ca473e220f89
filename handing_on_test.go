package locker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
)

// Where the service has a queue, the release and the request of who comes next
// are under way at once. Elsewhere that request would be refused, and has to
// wait for the answer.
func TestNextInLineAsksWhileTheReleaseIsUnderWayIfTheServiceHasAQueue(t *testing.T) {
	for _, queue := range []bool{true, false} {
		t.Run(fmt.Sprintf("queue=%v", queue), func(t *testing.T) {
			f := newFake()
			f.queue = queue
			releasing, answer := make(chan struct{}), make(chan struct{})
			f.release = func(n int, _ context.Context) error {
				if n == 1 {
					close(releasing)
					<-answer
				}
				return nil
			}
			second := make(chan struct{})
			f.before = func(n int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
				if n != 2 {
					return locker.Grant{}, nil, false
				}
				close(second)
				<-answer // as a queue has who comes second wait
				for f.owner(req.Name) != "" {
					time.Sleep(time.Millisecond)
				}
				return locker.Grant{}, nil, false
			}
			c := closing(t, locker.New(f, nil))
			l, err := c.Lock(t.Context(), "job")
			require.NoError(t, err)
			done := make(chan error, 2)
			go func() {
				next, err := c.Lock(context.Background(), "job")
				if err == nil {
					err = next.Unlock(context.Background())
				}
				done <- err
			}()
			require.Eventually(t, func() bool { return c.Stats().Waiting == 1 }, 5*time.Second, time.Millisecond)
			go func() { done <- l.Unlock(context.Background()) }()
			<-releasing
			if queue {
				select {
				case <-second:
				case <-time.After(5 * time.Second):
					t.Error("who comes next does not ask")
				}
			} else {
				assert.Never(t, func() bool { return f.asked() > 1 }, 50*time.Millisecond, 5*time.Millisecond)
			}
			close(answer)
			require.NoError(t, <-done)
			require.NoError(t, <-done)
			assert.Equal(t, 2, f.asked())
		})
	}
}
