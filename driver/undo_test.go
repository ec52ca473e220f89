package driver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/driver"
)

// Undo of a hold, which asked for a second, is nil once nothing of it is left or can arrive, or that second
// has passed since the last request.
func TestUndoOfAService(t *testing.T) {
	const ttl, late = time.Second, time.Second + time.Second/100 + 2*time.Millisecond
	down := errors.New("down")
	for name, test := range map[string]struct {
		sends    []bool        // requests that are over, late or not
		sending  bool          // one more is under way
		released error         // what Release says
		after    time.Duration // when Undo is asked
		settled  bool
	}{
		"nothing was sent":            {released: driver.ErrLost, settled: true},
		"removed":                     {sends: []bool{false}, settled: true},
		"not there":                   {sends: []bool{false}, released: driver.ErrLost, settled: true},
		"not there yet":               {sends: []bool{false, true}, released: driver.ErrLost},
		"removed, a copy may come":    {sends: []bool{true, false}},
		"removed, one is under way":   {sends: []bool{false}, sending: true},
		"no answer":                   {sends: []bool{false}, released: down, after: late - 1},
		"no answer for long enough":   {sends: []bool{true}, released: down, after: late, settled: true},
		"a copy may come no more":     {sends: []bool{true}, after: late, settled: true},
		"one is under way all along":  {sends: []bool{false}, sending: true, released: down, after: time.Hour},
		"not there and one under way": {sending: true, released: driver.ErrLost, after: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var u driver.Undo
				for _, late := range test.sends {
					u.Sends(ttl)
					u.Sends(ttl / 2)
					u.Sent(late)
					u.Sent(false)
				}
				if test.sending {
					u.Sends(ttl)
				}
				time.Sleep(test.after)
				err := u.Undo(t.Context(), func(context.Context) error { return test.released })
				assert.Equal(t, test.settled, err == nil, "%v", err)
				assert.Equal(t, !test.settled && !errors.Is(test.released, down), errors.Is(err, driver.ErrLost))
			})
		})
	}
}

// A request that is answered while the release is under way may have come after it.
func TestUndoKnowsOfARequestThatArrivesBesideIt(t *testing.T) {
	var u driver.Undo
	u.Sends(time.Minute)
	beside := func(context.Context) error { u.Sent(false); return driver.ErrLost }
	assert.Error(t, u.Undo(t.Context(), beside))
	assert.NoError(t, u.Undo(t.Context(), func(context.Context) error { return nil }))
}

// A Hold tells its Undo of each request that may store or prolong the hold.
func ExampleUndo() {
	release := func(context.Context) error { return driver.ErrLost } // the service: it is not there
	for _, answer := range []error{nil, errors.New("no answer")} {
		var undo driver.Undo
		undo.Sends(time.Minute)
		// Here the request is sent, and answered or not.
		undo.Sent(answer != nil)
		fmt.Println(answer, "->", undo.Undo(context.Background(), release))
	}
	// Output:
	// <nil> -> <nil>
	// no answer -> the lease is lost
}
