package cas

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// The engine may ask every 90 s only, where many wait: what it has seen is not forgotten meanwhile, and is when nobody
// asks any more.
func TestWhatWasSeenIsKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 5000
		b := &backend{looks: map[string]look{}}
		for range 5 {
			for i := range many {
				b.saw(fmt.Sprint(i), look{sight: sight{{owner: "dead"}: time.Now()}})
			}
			time.Sleep(90 * time.Second)
			for i := range many {
				assert.NotEmpty(t, b.last(fmt.Sprint(i)).sight)
			}
		}
		time.Sleep(keepLooks)
		b.saw("another", look{sight: sight{{owner: "dead"}: time.Now()}})
		assert.Len(t, b.looks, 1)
	})
}
