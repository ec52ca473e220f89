package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/golockers/locker/fencing"
)

// Guard lets writes to objects of a store with conditional writes (S3 and compatible stores with
// If-Match) happen only if no higher token was accepted for the object.
//
// The token is the first line of the object. It must be in the content, because a conditional write
// compares the ETag, which is computed from it: metadata does not change the ETag, and a write with the
// same content and a higher token must.
type Guard struct {
	Client *s3.Client
	Bucket string
}

// object is what is stored under a key; the zero value stands for nothing.
type object struct {
	mark fencing.Token
	data []byte
	etag *string
}

// Write replaces the data of the object.
func (g *Guard) Write(ctx context.Context, key string, token fencing.Token, data []byte) error {
	return g.change(ctx, key, token, func([]byte) []byte { return data })
}

// Raise moves the mark and leaves the data as they are.
func (g *Guard) Raise(ctx context.Context, key string, token fencing.Token) error {
	return g.change(ctx, key, token, func(data []byte) []byte { return data })
}

func (g *Guard) change(ctx context.Context, key string, token fencing.Token, next func([]byte) []byte) error {
	for {
		old, err := g.Read(ctx, key)
		if err != nil {
			return err
		}
		if err = fencing.Admit(key, token, old.mark); err != nil {
			return err
		}
		content := append([]byte(token.String()+"\n"), next(old.data)...)
		put := &s3.PutObjectInput{Bucket: &g.Bucket, Key: &key, Body: bytes.NewReader(content)}
		if old.etag != nil {
			put.IfMatch = old.etag
		} else {
			put.IfNoneMatch = aws.String("*")
		}
		_, err = g.Client.PutObject(ctx, put, func(o *s3.Options) { o.Retryer = aws.NopRetryer{} })
		switch said := status(err); {
		case err == nil:
			return nil
		case said == http.StatusPreconditionFailed, said == http.StatusConflict,
			said == http.StatusNotFound && old.etag != nil:
			// There was another write since, or a deletion: read again. It cannot have been this write
			// itself, because the client does not repeat it when its answer is lost.
		default:
			return failed(ctx, "write", key, err, fencing.Unknown)
		}
	}
}

// Read returns the object and its mark.
func (g *Guard) Read(ctx context.Context, key string) (object, error) {
	out, err := g.Client.GetObject(ctx, &s3.GetObjectInput{Bucket: &g.Bucket, Key: &key})
	if status(err) == http.StatusNotFound {
		return object{}, nil
	}
	if err != nil {
		return object{}, failed(ctx, "read", key, err, fencing.Unsent)
	}
	defer func() { _ = out.Body.Close() }()
	content, err := io.ReadAll(out.Body)
	if err != nil {
		return object{}, failed(ctx, "read", key, err, fencing.Unsent)
	}
	line, data, _ := bytes.Cut(content, []byte("\n"))
	mark, err := fencing.Parse(string(line))
	if err != nil {
		return object{}, fmt.Errorf("s3: %q does not begin with a token: %w", key, err)
	}
	return object{mark, data, out.ETag}, nil
}

// failed makes the error of a request. Unless the server has refused it, its outcome is o.
func failed(ctx context.Context, op, key string, err error, o fencing.Outcome) error {
	if said := status(err); said >= 300 && said < 500 {
		o = fencing.Refused
	}
	return fencing.Failed(ctx, fmt.Sprintf("s3: %s %q", op, key), err, o)
}

// status is what the server answered; 0: nothing, or success.
func status(err error) int {
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) {
		return answer.HTTPStatusCode()
	}
	return 0
}
