package main

import (
	"context"
	"io"
	"log"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/guardtest"
	"github.com/golockers/locker/internal/lab"
)

// start serves a bucket in this process.
func start(t *testing.T) (addr string) {
	fake := gofakes3.New(s3mem.New(), gofakes3.WithGlobalLog(),
		gofakes3.WithLogger(gofakes3.StdLog(log.New(io.Discard, "", 0))))
	server := httptest.NewServer(fake.Server())
	t.Cleanup(server.Close)
	addr = server.Listener.Addr().String()
	_, err := connect("http://"+addr).CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("orders")})
	require.NoError(t, err)
	return addr
}

// store is a guard at addr, and what is there at admin.
func store(addr, admin string) guardtest.Store {
	g, there := &Guard{connect("http://" + addr), "orders"}, &Guard{connect("http://" + admin), "orders"}
	return guardtest.Store{
		Write: func(ctx context.Context, r string, token fencing.Token, value string) error {
			return g.Write(ctx, r, token, []byte(value))
		},
		Raise: g.Raise,
		Read: func(ctx context.Context, r string) (string, error) {
			o, err := there.Read(ctx, r)
			return string(o.data), err
		},
		Mark: func(ctx context.Context, r string) (fencing.Token, error) {
			o, err := g.Read(ctx, r)
			return o.mark, err
		},
	}
}

func TestSuite(t *testing.T) {
	addr := start(t)
	guardtest.Run(t, func(*testing.T) guardtest.Store { return store(addr, addr) })
	guardtest.Faults(t, func(t *testing.T) guardtest.Proxied {
		addr := start(t)
		p := lab.StartProxy(t, addr)
		return guardtest.Proxied{Store: store(p.Addr(), addr), Proxy: p, Later: store(addr, addr).Write}
	})
}

// A write that has landed is not refused because a later holder was there when it was asked about.
func TestALostReplyIsNoRefusal(t *testing.T) {
	addr := start(t)
	p, later := lab.StartProxy(t, addr), store(addr, addr)
	p.OnRequest("mine", func(l *lab.Link) {
		l.Replies(lab.Drop)
		go func() {
			assert.Eventually(t, func() bool {
				landed, _ := later.Read(t.Context(), "r")
				return landed == "mine"
			}, time.Minute, time.Millisecond)
			assert.NoError(t, later.Write(t.Context(), "r", 2, "another's"))
			l.Reset()
		}()
	})
	err := store(p.Addr(), addr).Write(t.Context(), "r", 1, "mine")
	require.ErrorIs(t, err, fencing.ErrUnknown)
	assert.NotErrorIs(t, err, fencing.ErrStale)
}
