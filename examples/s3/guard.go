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

// Guard lets writes to objects of a store with conditional writes (S3, and what speaks
// its protocol: If-Match) happen only if no higher token was accepted for the object.
//
// The token is the first line of the object. It has to be in the content, since the
// ETag, which a conditional write compares, is made of that: metadata does not change
// it, and a write with the same content and a higher token must.
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
		_, err = g.Client.PutObject(ctx, put)
		switch said := status(err); {
		case err == nil:
			return nil
		case said == http.StatusPreconditionFailed, said == http.StatusConflict,
			said == http.StatusNotFound && old.etag != nil:
			// Another write was here since, or a deletion, or this write itself, whose
			// answer was lost and which the client has sent again: look once more.
		case said == 0, said >= http.StatusInternalServerError:
			return fmt.Errorf("s3: %q: %w: %w", key, err, fencing.ErrUnknown)
		default:
			return err
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
		return object{}, err
	}
	defer func() { _ = out.Body.Close() }()
	content, err := io.ReadAll(out.Body)
	if err != nil {
		return object{}, err
	}
	line, data, _ := bytes.Cut(content, []byte("\n"))
	mark, err := fencing.Parse(string(line))
	if err != nil {
		return object{}, fmt.Errorf("s3: %q does not begin with a token: %w", key, err)
	}
	return object{mark, data, out.ETag}, nil
}

// status is what the server answered; 0: nothing, or success.
func status(err error) int {
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) {
		return answer.HTTPStatusCode()
	}
	return 0
}
