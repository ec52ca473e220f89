package zookeeper_test

import (
	"context"
	"io"
	"log"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/internal/contest"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/zookeeper"
)

var contenders = contest.Contenders{
	Locker: func(servers []string, _ int) (contest.Op, func(), error) {
		b, err := zookeeper.New(servers, &zookeeper.Options{SessionTimeout: 30 * time.Second})
		return contest.OfBackend(b, err)
	},
	Name:   "zk.Lock",
	Theirs: recipeContender,
	Raw:    rawContender,
}

func recipeContender(servers []string, _ int) (contest.Op, func(), error) {
	c, done, err := connect(servers)
	return func(_ context.Context, _ int, name string) error {
		l := zk.NewLock(c, "/zklock/"+name, zk.WorldACL(zk.PermAll))
		if err := l.Lock(); err != nil {
			return err
		}
		return l.Unlock()
	}, done, err
}

// rawContender creates a node and deletes it. Nobody waits here, and nothing is safe.
func rawContender(servers []string, _ int) (contest.Op, func(), error) {
	c, done, err := connect(servers)
	if err != nil {
		return nil, nil, err
	}
	acl := zk.WorldACL(zk.PermAll)
	_, _ = c.Create("/raw", nil, 0, acl)
	var made sync.Map
	return func(_ context.Context, _ int, name string) error {
		dir := "/raw/" + name
		if _, known := made.LoadOrStore(name, true); !known {
			_, _ = c.Create(dir, nil, 0, acl)
		}
		path, err := c.Create(dir+"/n-", []byte("bench"), zk.FlagEphemeral|zk.FlagSequence, acl)
		if err == nil {
			err = c.Delete(path, -1)
		}
		return err
	}, done, nil
}

// connect is dial for programs other than tests.
func connect(addrs []string) (*zk.Conn, func(), error) {
	c, events, err := zk.Connect(addrs, 30*time.Second, zk.WithLogger(log.New(io.Discard, "", 0)))
	return c, func() {
		c.Close()
		for range events {
		}
	}, err
}

// BenchmarkContest is the contest on one server.
func BenchmarkContest(b *testing.B) { contenders.Run(b, []string{lab.StartZooKeeper(b).Addr()}) }
