package zkguard_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The example is what people paste: it has to do what it says.
func TestExample(t *testing.T) {
	s := newScene(t)
	require.NoError(t, rotate(s.server.Addr()))
	data, _ := look(t, s.admin, "/billing-key")
	assert.Equal(t, "v2", data)
}
