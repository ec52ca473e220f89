package main

import (
	"context"
	"io"
	"log"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/guardtest"
)

func TestSuite(t *testing.T) {
	fake := gofakes3.New(s3mem.New(), gofakes3.WithGlobalLog(),
		gofakes3.WithLogger(gofakes3.StdLog(log.New(io.Discard, "", 0))))
	server := httptest.NewServer(fake.Server())
	t.Cleanup(server.Close)
	guard := &Guard{Client: connect(server.URL), Bucket: "orders"}
	_, err := guard.Client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("orders")})
	require.NoError(t, err)
	guardtest.Run(t, func(*testing.T) guardtest.Store {
		return guardtest.Store{
			Write: func(ctx context.Context, r string, token fencing.Token, value string) error {
				return guard.Write(ctx, r, token, []byte(value))
			},
			Raise: guard.Raise,
			Read: func(ctx context.Context, r string) (string, error) {
				o, err := guard.Read(ctx, r)
				return string(o.data), err
			},
			Mark: func(ctx context.Context, r string) (fencing.Token, error) {
				o, err := guard.Read(ctx, r)
				return o.mark, err
			},
		}
	})
}
