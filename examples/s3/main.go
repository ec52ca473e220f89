// Command s3 guards an object of S3, or of what speaks its protocol and knows If-Match.
// The lock is in Redis.
package main

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/golockers/locker/examples/internal/story"
	"github.com/golockers/locker/fencing"
)

type order struct{ guard *Guard }

func (o order) Raise(ctx context.Context, token fencing.Token) error {
	return o.guard.Raise(ctx, "order/42", token)
}

func (o order) Set(ctx context.Context, token fencing.Token, state string) error {
	return o.guard.Write(ctx, "order/42", token, []byte(state))
}

func (o order) Get(ctx context.Context) (string, error) {
	object, err := o.guard.Read(ctx, "order/42")
	return string(object.data), err
}

func connect(url string) *s3.Client {
	return s3.New(s3.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String(url), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	})
}

func main() {
	guard := &Guard{Client: connect("http://localhost:9000"), Bucket: "orders"}
	story.Tell(context.Background(), "redis://localhost:6379", order{guard})
}
