package zookeeper_test

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/zookeeper"
)

// request is how the requests of one kind begin that are about a path of that
// length beginning with that.
func request(op uint32, path string, length int) string {
	b := binary.BigEndian.AppendUint32(nil, op)
	return string(binary.BigEndian.AppendUint32(b, uint32(length))) + path
}

const opCreate, opDelete, opMulti, opCreateContainer = 1, 2, 14, 19

// creationIn is the creation of a node in the queue of a lock: the first
// operation of a transaction.
func creationIn(dir string) string {
	b := binary.BigEndian.AppendUint32(nil, opMulti)
	b = append(binary.BigEndian.AppendUint32(b, opCreate), 0, 0xff, 0xff, 0xff, 0xff)
	b = binary.BigEndian.AppendUint32(b, uint32(len(dir)+len("/"+owner()+"-lock-")))
	return string(b) + dir + "/"
}

// The service removes a container only if it has had a node. One that was made
// for a caller who gave up before that would stay for ever.
func TestContainerThatWasNeverUsedIsRemoved(t *testing.T) {
	t.Setenv("JAVA_TOOL_OPTIONS", "-Dznode.container.checkIntervalMs=100")
	z := lab.StartZooKeeper(t)
	admin, done := dial(t, []string{z.Addr()})
	defer done()
	creation := func(name string) string { return creationIn("/locker/" + name) }
	container := func(name string) string {
		dir := "/locker/" + name
		return request(opCreateContainer, dir, len(dir))
	}
	for what, one := range map[string]struct {
		request func(name string) string
		times   int // which of them it is
		cause   func(*lab.Link)
		cancels bool
	}{
		"container-given-up":     {container, 1, func(*lab.Link) {}, true},
		"container-reply-lost":   {container, 1, func(l *lab.Link) { l.Replies(lab.Drop) }, true},
		"container-reply-cut":    {container, 1, func(l *lab.Link) { l.CutOnReply() }, true},
		"creation-given-up":      {creation, 2, func(*lab.Link) {}, true},
		"creation-lost":          {creation, 2, func(l *lab.Link) { l.Reset() }, true},
		"creation-never-arrives": {creation, 2, func(l *lab.Link) { l.Requests(lab.Drop) }, true},
		"creation-reset":         {creation, 2, func(l *lab.Link) { l.Reset() }, false},
	} {
		p := lab.StartProxy(t, z.Addr())
		c := newClient(t, []string{p.Addr()}, zookeeper.Options{})
		warm(t, c, "warm")
		name := "unused-" + what
		ctx, cancel := context.WithCancel(t.Context())
		broken := make(chan struct{})
		seen := 0
		var hook func(*lab.Link)
		hook = func(l *lab.Link) {
			if seen++; seen < one.times {
				p.OnRequest(one.request(name), hook)
				return
			}
			one.cause(l)
			if one.cancels {
				cancel()
			}
			close(broken)
		}
		p.OnRequest(one.request(name), hook)
		l, err := c.Lock(ctx, name)
		if err == nil {
			require.NoError(t, l.Unlock(within(t, soon)), what)
		} else if one.cancels {
			require.ErrorIs(t, err, context.Canceled, what)
		}
		<-broken
		cancel()
		dir := "/locker/" + name
		require.Eventually(t, func() bool {
			there, _, err := admin.Exists(dir)
			return err == nil && !there
		}, soon, 10*time.Millisecond, "%s: the container is left", what)
		useWhenBack(t, c, name)
	}
}

// It may be removed under another who has just made it, or found it.
func testContainerIsRemovedUnderAnother(t *testing.T, z *lab.ZooKeeper) {
	admin, done := dial(t, []string{z.Addr()})
	defer done()
	p := lab.StartProxy(t, z.Addr())
	c := newClient(t, []string{p.Addr()}, zookeeper.Options{})
	dir := "/locker/removed-under"
	removed := 0
	var hook func(*lab.Link)
	hook = func(*lab.Link) { // the creation of the node
		err := admin.Delete(dir, -1)
		if removed == 0 {
			assert.ErrorIs(t, err, zk.ErrNoNode)
		} else {
			assert.NoError(t, err)
		}
		if removed++; removed < 4 {
			p.OnRequest(creationIn(dir), hook)
		}
	}
	p.OnRequest(creationIn(dir), hook)
	l := locktest.Lock(t, c, "removed-under")
	assert.Equal(t, 4, removed)
	assert.Len(t, queueOf(t, z.Addr(), "removed-under"), 1)
	require.NoError(t, l.Unlock(within(t, soon)))
}

// The removal comes when another has a node in it already.
func testContainerInUseIsNotRemoved(t *testing.T, z *lab.ZooKeeper) {
	p := lab.StartProxy(t, z.Addr())
	c := newClient(t, []string{p.Addr()}, zookeeper.Options{})
	other := newClient(t, []string{z.Addr()}, zookeeper.Options{})
	warm(t, c, "warm")
	dir := "/locker/in-use"
	ctx, cancel := context.WithCancel(t.Context())
	p.OnRequest(request(opCreateContainer, dir, len(dir)), func(l *lab.Link) { l.CutOnReply(); cancel() })
	var held *locker.Lease
	came := make(chan struct{})
	p.OnRequest(request(opDelete, dir, len(dir)), func(*lab.Link) {
		defer close(came)
		var err error
		held, err = other.Lock(context.Background(), "in-use")
		assert.NoError(t, err)
	})
	_, err := c.Lock(ctx, "in-use")
	require.Error(t, err)
	select {
	case <-came:
	case <-time.After(soon):
		require.Fail(t, "the container was not removed")
	}
	require.Eventually(t, func() bool { return c.Stats().TakenBack == 1 }, soon, time.Millisecond)
	require.NoError(t, held.Err())
	assert.Len(t, queueOf(t, z.Addr(), "in-use"), 1)
	require.NoError(t, held.Unlock(within(t, soon)))
}
