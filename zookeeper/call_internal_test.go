package zookeeper

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
)

// What may be there is looked for and removed (R7): only what the service has
// refused to create certainly is not.
func TestACreationThatWasNotRefusedMayBeThere(t *testing.T) {
	for err, may := range map[error]bool{
		nil:                           false, // its node is known
		zk.ErrNoNode:                  false,
		zk.ErrNoAuth:                  false,
		zk.ErrAuthFailed:              false,
		zk.ErrInvalidACL:              false,
		zk.ErrNoChildrenForEphemerals: false,
		zk.ErrConnectionClosed:        true,
		zk.ErrNoServer:                true,
		zk.ErrSessionMoved:            true,
		zk.ErrSessionExpired:          true,
		zk.ErrAPIError:                true, // the server's own, as are those whose number the driver does not know
		zk.ErrUnknown:                 true,
	} {
		assert.Equal(t, may, mayBeCreated(err), "%v", err)
	}
}
