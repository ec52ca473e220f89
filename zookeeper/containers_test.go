package zookeeper_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/testserver"
	"github.com/golockers/locker/zookeeper"
)

// request is how the requests of one kind begin that are about a path of that
// length beginning with that.
func request(op uint32, path string, length int) string {
	b := binary.BigEndian.AppendUint32(nil, op)
	return string(binary.BigEndian.AppendUint32(b, uint32(length))) + path
}

const opCreate, opCreateContainer = 1, 19

// The service removes a container only if it has had a node. One that was made
// for a caller who gave up before that would stay for ever.
func TestContainerThatWasNeverUsedIsRemoved(t *testing.T) {
	t.Setenv("JAVA_TOOL_OPTIONS", "-Dznode.container.checkIntervalMs=100")
	z := testserver.StartZooKeeper(t)
	admin, done := dial(t, []string{z.Addr()})
	defer done()
	creation := func(name string) string {
		dir := "/locker/" + name
		return request(opCreate, dir+"/", len(dir)+len("/"+owner()+"-lock-"))
	}
	container := func(name string) string {
		dir := "/locker/" + name
		return request(opCreateContainer, dir, len(dir))
	}
	for what, one := range map[string]struct {
		request func(name string) string
		times   int // which of them it is
		cause   func(*testserver.Link)
		cancels bool
	}{
		"container-given-up":     {container, 1, func(*testserver.Link) {}, true},
		"container-reply-lost":   {container, 1, func(l *testserver.Link) { l.SetReplies(testserver.Drop) }, true},
		"container-reply-cut":    {container, 1, func(l *testserver.Link) { l.CutOnReply() }, true},
		"creation-given-up":      {creation, 2, func(*testserver.Link) {}, true},
		"creation-lost":          {creation, 2, func(l *testserver.Link) { l.Reset() }, true},
		"creation-never-arrives": {creation, 2, func(l *testserver.Link) { l.SetRequests(testserver.Drop) }, true},
		"creation-reset":         {creation, 2, func(l *testserver.Link) { l.Reset() }, false},
	} {
		p := testserver.StartProxy(t, z.Addr())
		c := newClient(t, []string{p.Addr()}, zookeeper.Options{})
		warm, err := c.Lock(within(t, soon), "warm")
		require.NoError(t, err)
		require.NoError(t, warm.Unlock(within(t, soon)))
		name := "unused-" + what
		ctx, cancel := context.WithCancel(t.Context())
		broken := make(chan struct{})
		seen := 0
		var hook func(*testserver.Link)
		hook = func(l *testserver.Link) {
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

// It may be removed under another who has just found it, or made it.
func TestContainerIsRemovedUnderOthers(t *testing.T) {
	t.Parallel()
	z := testserver.StartZooKeeper(t)
	a := newClient(t, []string{z.Addr()}, zookeeper.Options{})
	b := newClient(t, []string{z.Addr()}, zookeeper.Options{})
	for i := range 200 {
		name := fmt.Sprint("shared-", i)
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan struct{})
		go func() {
			defer close(gaveUp)
			if l, err := a.Lock(ctx, name); err == nil {
				_ = l.Unlock(context.Background())
			}
		}()
		if i%2 == 0 {
			cancel()
		}
		l, err := b.Lock(within(t, soon), name)
		cancel()
		if assert.NoError(t, err) {
			assert.NoError(t, l.Err())
			assert.NoError(t, l.Unlock(within(t, soon)))
		}
		<-gaveUp
	}
}
