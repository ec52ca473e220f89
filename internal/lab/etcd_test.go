package lab_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

// etcdDo asks a member over HTTP, where keys and values are base64.
func etcdDo(t *testing.T, n *lab.Etcd, path, body string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.URL()+path, strings.NewReader(body))
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

const (
	etcdPut = `{"key":"aw==","value":"dg=="}`
	etcdGet = `{"key":"aw=="}`
)

func TestEtcdKeepsItsDataOverARestart(t *testing.T) {
	c := lab.StartEtcd(t, 1)
	n := c.Nodes[0]
	assert.Contains(t, etcdDo(t, n, "/v3/kv/put", etcdPut), "revision")
	n.Restart(t)
	assert.Contains(t, etcdDo(t, n, "/v3/kv/range", etcdGet), `"value":"dg=="`)
	c.Restart(t)
	assert.Contains(t, etcdDo(t, n, "/v3/kv/range", etcdGet), `"value":"dg=="`)
}

func TestProveEtcdElectsAnotherLeaderWhenItsOwnIsPausedOrKilled(t *testing.T) {
	lab.NeedProve(t)
	c := lab.StartEtcd(t, 3)
	first := c.Leader(t)
	first.Pause()
	second := c.Leader(t, first)
	assert.NotSame(t, first, second)
	first.Resume()
	second = c.Leader(t)
	second.Kill()
	third := c.Leader(t)
	assert.NotSame(t, second, third)
	second.Restart(t)
	assert.NotSame(t, third, c.Follower(t))
}

func TestProveEtcdMemberThatIsIsolatedServesNobody(t *testing.T) {
	lab.NeedProve(t)
	c := lab.StartEtcd(t, 3, lab.WithPeerProxies())
	n := c.Leader(t)
	undo := c.Isolate(n)
	next := c.Leader(t, n)
	assert.NotSame(t, n, next)
	assert.NotContains(t, etcdDo(t, n, "/v3/kv/put", etcdPut), "revision")
	assert.Contains(t, etcdDo(t, next, "/v3/kv/put", etcdPut), "revision")
	undo()
	eventually(t, "the member has caught up", func() bool {
		return strings.Contains(etcdDo(t, n, "/v3/kv/range", etcdGet), `"value":"dg=="`)
	})
}
