package lab_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

func TestZooKeeperStandsAloneAndComesBack(t *testing.T) {
	z := lab.StartZooKeeper(t)
	mode, err := z.Mode()
	require.NoError(t, err)
	assert.Equal(t, "standalone", mode)
	addr := z.Addr()
	z.Kill()
	_, err = z.Mode()
	require.Error(t, err)
	z.Restart(t)
	assert.Equal(t, addr, z.Addr())
	mode, err = z.Mode()
	require.NoError(t, err)
	assert.Equal(t, "standalone", mode)
}

func TestProveZooKeeperEnsembleElectsAnotherLeader(t *testing.T) {
	lab.NeedProve(t)
	e := lab.StartZooKeeperEnsemble(t, 3)
	old := e.Leader(t)
	began := time.Now()
	old.Kill()
	next := e.Leader(t, e.Others(old)...)
	assert.NotSame(t, old, next)
	t.Logf("another led after %v", time.Since(began))
	e.Restart(t)
	assert.Same(t, next, e.Leader(t))
}

func TestProveZooKeeperIsolatedFollowerServesNobody(t *testing.T) {
	lab.NeedProve(t)
	e := lab.StartZooKeeperEnsemble(t, 3)
	follower := e.Others(e.Leader(t))[0]
	e.Isolate(follower, lab.Drop)
	eventually(t, "it notices", func() bool { mode, err := follower.Mode(); return err == nil && mode == "" })
	assert.Contains(t, e.Others(follower), e.Leader(t), "the others go on")
	e.Isolate(follower, lab.Pass)
	eventually(t, "it follows again", func() bool { mode, _ := follower.Mode(); return mode == "follower" })
}

func TestProveZooKeeperIsolatedLeaderIsReplaced(t *testing.T) {
	lab.NeedProve(t)
	e := lab.StartZooKeeperEnsemble(t, 3)
	old := e.Leader(t)
	e.Isolate(old, lab.Drop)
	next := e.Leader(t, e.Others(old)...)
	assert.NotSame(t, old, next)
	e.Isolate(old, lab.Pass)
	eventually(t, "it follows", func() bool { mode, _ := old.Mode(); return mode == "follower" })
}
