// Command s3 guards an object of S3, or of a compatible store with If-Match. The lock is in Redis.
package main

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/golockers/locker/examples/internal/story"
	"github.com/golockers/locker/fencing"
)

func connect(url string) *s3.Client {
	return s3.New(s3.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String(url), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	})
}

func main() {
	guard := &Guard{Client: connect("http://localhost:9000"), Bucket: "orders"}
	story.Tell(context.Background(), "redis://localhost:6379", story.Order{
		Raise: guard.Raise,
		Set: func(ctx context.Context, token fencing.Token, state string) error {
			return guard.Write(ctx, story.Lock, token, []byte(state))
		},
		Get: func(ctx context.Context) (string, error) {
			object, err := guard.Read(ctx, story.Lock)
			return string(object.data), err
		},
	})
}
