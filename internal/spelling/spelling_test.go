package spelling_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/internal/spelling"
)

func TestMeant(t *testing.T) {
	known := []string{"network", "fencing", "restart", "run", "redis", "rediss"}
	for word, want := range map[string]string{"netwrk": "network", "fenc": "fencing", "Restart": "restart", "rnu": "run",
		"reds": "redis", "redisss": "rediss", "etcd": "", "": "", "nothing": ""} {
		if want != "" {
			want = ": did you mean " + want + "?"
		}
		assert.Equal(t, want, spelling.Meant(word, known), word)
	}
}
