// Package etcderr says what an error of etcd's driver means, for everything in this
// module that talks to etcd.
package etcderr

import (
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golockers/locker"
)

// Outcome is what became of a request that failed.
type Outcome int

const (
	// Refused: it was not carried out and will not be, and trying again does not help.
	Refused Outcome = iota
	// NotYet: it was not carried out and will not be. Another member, or the same one
	// later, may do it.
	NotYet
	// Answered: it may have been carried out, and is not under way any more.
	Answered
	// Unknown: it may have been carried out, or may yet be.
	Unknown
)

// Of classifies an error of a request that was sent.
func Of(err error) Outcome {
	err = rpctypes.Error(err)
	var e rpctypes.EtcdError
	if !errors.As(err, &e) {
		if code := status.Code(err); code == codes.Unimplemented || code == codes.InvalidArgument {
			return Refused // an old server, or a message that is too long
		}
		return Unknown
	}
	switch {
	case errors.Is(err, rpctypes.ErrNoLeader), errors.Is(err, rpctypes.ErrNotLeader),
		errors.Is(err, rpctypes.ErrTooManyRequests),
		errors.Is(err, rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)),
		errors.Is(err, rpctypes.ErrInvalidAuthToken), errors.Is(err, rpctypes.ErrAuthOldRevision):
		return NotYet
	case errors.Is(err, rpctypes.ErrNoSpace):
		// The request that fills the store is carried out, and answered as if it was not.
		return Answered
	}
	switch e.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.OutOfRange:
		return Refused
	}
	return Unknown
}

// LeaseGone reports whether etcd says that a lease does not exist.
func LeaseGone(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

// Explain puts an error into the words of package locker. It matches
// [locker.ErrUnavailable] if trying again may help. where names the cluster, and
// prefix what the user has to have rights on.
func Explain(where, prefix string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("%s: %w: grant the user readwrite on the prefix %s", where, err, prefix)
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return fmt.Errorf("%s: %w: it asks for a user and a password", where, err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%s: %w: its store is full (alarm NOSPACE): compact and defragment it, "+
			"raise --quota-backend-bytes, then run etcdctl alarm disarm: %w", where, err, locker.ErrUnavailable)
	case Of(err) == Refused:
		return fmt.Errorf("%s: %w", where, err)
	}
	// A deadline in it is not the caller's: it is not wrapped.
	return fmt.Errorf("%s: %v: %w", where, err, locker.ErrUnavailable) //nolint:errorlint // on purpose
}
