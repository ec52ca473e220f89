package zkguard_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
)

// To the service, version -1 is any version: a mark that had it could be moved
// by anybody.
func TestTheVersionThatCannotBeComparedIsPassedOver(t *testing.T) {
	s := newScene(t)
	s.guard.PassOver(2)
	put(t, s.admin, "/data", "")
	var versions []int32
	for token := range fencing.Token(5) {
		results, err := s.guard.Multi(within(t, soon), "r", token+1, set("/data", "x"))
		require.NoError(t, err)
		require.Len(t, results, 1)
		data, stat, err := s.admin.Get("/fencing/1/mark/r")
		require.NoError(t, err)
		assert.Equal(t, (token + 1).String(), string(data))
		versions = append(versions, stat.Version)
		_, err = s.guard.Multi(within(t, soon), "r", token)
		require.Error(t, err)
	}
	assert.Equal(t, []int32{0, 1, 2, 4, 5}, versions)
}
