package election_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker"
	"github.com/golockers/locker/election"
)

type counted int

func (n *counted) Inspect(context.Context, string) (locker.State, error) {
	*n++
	return locker.State{}, nil
}

func TestObserveWithoutAPauseIsNotALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked counted
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()

		for _, err := range election.Observe(ctx, &asked, "job", 0) {
			_ = err
		}
		assert.LessOrEqual(t, int(asked), 25)
	})
}
