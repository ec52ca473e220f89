package backends_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
)

// A line end behind a URL, as in a file with a secret, would be a part of the prefix or
// the directory, and two programs would hold one lock.
func TestNoSchemeTakesALineEndForAPartOfItsURL(t *testing.T) {
	for scheme := range backends.Openers {
		for _, url := range []string{
			scheme + "://user:hush@127.0.0.1:1/a", scheme + "://127.0.0.1:1?prefix=a", scheme + ":///tmp",
			"memory:// " + scheme + "://127.0.0.1:1/a",
		} {
			for _, behind := range []string{"\n", "\r\n", "\r", " ", "\t", "\x00"} {
				c, err := backends.Openers.Open(t.Context(), url+behind, nil)
				if !assert.ErrorIs(t, err, locker.ErrInvalid, "%q", url+behind) {
					if c != nil {
						_ = c.Close()
					}
					continue
				}
				assert.ErrorContains(t, err, "remove it")
				assert.NotContains(t, err.Error(), "hush")
			}
		}
	}
}
