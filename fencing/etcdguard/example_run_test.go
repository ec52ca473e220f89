package etcdguard_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The examples are what people paste: they have to do what they say.
func TestExamples(t *testing.T) {
	s := newScene(t, 1)
	require.NoError(t, rotate(s.Nodes[0].Addr()))
	assert.Equal(t, "v2", s.value(t, "billing/key"))
	require.NoError(t, rotateByOwnership(s.Nodes[0].Addr()))
	assert.Equal(t, "v3", s.value(t, "billing/key"))
}
