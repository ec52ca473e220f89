package redisconn

import (
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/redis/go-redis/v9"
)

// Retry decides whether a request is worth sending again at once, since the reason
// for its failure is the connection and not the server. There are three such reasons.
//
// The connection was closed without an answer: by a server with an idle timeout, by a
// load balancer, by a fail-over. The driver notices that before it uses a plain
// socket. Over TLS, only the request itself finds out, and all idle connections in
// the driver's pools may be closed. Each failed request takes one of them out of the
// pool. So as many are tried as there are idle ones, and then new ones.
//
// The connection leads to a server that is no master any more, since an address or a
// name has moved. The driver closes such a connection.
//
// The password was refused, and the client asks a function for its credentials each
// time that it connects: the password may just have been changed.
//
// It is for one request, and not for several goroutines.
type Retry struct {
	client any  // of the driver
	tries  int  // how often the connection was to blame
	most   int  // how often it may be, before the request fails
	asked  bool // for credentials once more
}

// maxFresh is on how many new connections a request is sent again, after as many as
// the pool had idle ones when it first failed.
const maxFresh = 2

// NewRetry returns a Retry for one request by way of client, a client of the driver.
func NewRetry(client any) *Retry { return &Retry{client: client} }

// Worth reports whether to send the request again. err is why the last one failed.
func (r *Retry) Worth(err error) bool {
	switch {
	case !ofConnection(err):
		return false
	case badCredentials(err):
		again := !r.asked && asksForCredentials(r.client)
		r.asked = true
		return again
	}
	if r.tries++; r.tries == 1 {
		r.most = maxFresh
		if pool, ok := r.client.(interface{ PoolStats() *redis.PoolStats }); ok {
			s := pool.PoolStats()
			r.most += int(s.IdleConns)
			if s.PipelineStats != nil { // the driver's second pool, for pipelines
				r.most += int(s.PipelineStats.IdleConns)
			}
		}
	}
	return r.tries <= r.most
}

// ofConnection reports that the reason of a failure may be the connection.
func ofConnection(err error) bool {
	return err != nil && (HungUp(err) || redis.HasErrorPrefix(err, "READONLY") || badCredentials(err))
}

// HungUp reports that a connection ended before the answer: the request may have been
// carried out, or may yet be.
func HungUp(err error) bool {
	if err == nil || isDial(err) || isTLS(err) {
		return false
	}
	var op *net.OpError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return true
	}
	return errors.As(err, &op) && !op.Timeout() && (op.Op == "read" || op.Op == "write")
}

func badCredentials(err error) bool {
	return redis.HasErrorPrefix(err, "WRONGPASS") || redis.HasErrorPrefix(err, "NOAUTH")
}

// asksForCredentials reports that each new connection may have other credentials.
func asksForCredentials(client any) bool {
	switch c := client.(type) {
	case *redis.Client:
		o := c.Options()
		return o.CredentialsProvider != nil || o.CredentialsProviderContext != nil ||
			o.StreamingCredentialsProvider != nil
	case *redis.ClusterClient:
		o := c.Options()
		return o.CredentialsProvider != nil || o.CredentialsProviderContext != nil ||
			o.StreamingCredentialsProvider != nil
	}
	return false
}

// Recovered calls f, and makes an error of a panic. The driver panics at replies that
// no Redis gives, such as a length that is no size of anything. To a caller that is
// an answer that cannot be read.
func Recovered(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the answer cannot be read: %v", p)
		}
	}()
	return f()
}
