package redisguard_test

import (
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

// Example needs a server, so that it is run here and not by its // Output.
func TestExampleDoesWhatItSays(t *testing.T) {
	t.Setenv("REDIS_ADDR", lab.StartRedis(t).Addr())
	r, w, err := os.Pipe()
	require.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = w
	func() {
		defer func() { os.Stdout = stdout }()
		Example()
	}()
	require.NoError(t, w.Close())
	said, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "refused: true\npaid by the second\nparcels: 1\nerror: <nil>\n", string(said))
}
