package etcd

import (
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golockers/locker/driver"
)

// outcome is what became of a request that failed.
type outcome int

const (
	// refused: it was not carried out and will not be, and trying again does not help.
	refused outcome = iota
	// notYet: it was not carried out and will not be. Another member, or the same one
	// later, may do it.
	notYet
	// answered: it may have been carried out, and is not under way any more.
	answered
	// unknown: it may have been carried out, or may yet be.
	unknown
)

// outcomeOf classifies an error of a request that was sent.
func outcomeOf(err error) outcome {
	err = rpctypes.Error(err)
	var e rpctypes.EtcdError
	if !errors.As(err, &e) {
		code := status.Code(err)
		if code == codes.Unimplemented || code == codes.InvalidArgument || isOtherCluster(err) {
			return refused // an old server, a message that is too long, or nobody's whom we may ask
		}
		return unknown
	}
	switch {
	case errors.Is(err, rpctypes.ErrNoLeader), errors.Is(err, rpctypes.ErrNotLeader),
		errors.Is(err, rpctypes.ErrTooManyRequests),
		errors.Is(err, rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)),
		errors.Is(err, rpctypes.ErrInvalidAuthToken), errors.Is(err, rpctypes.ErrAuthOldRevision):
		return notYet
	case errors.Is(err, rpctypes.ErrNoSpace):
		// The request that fills the store is carried out, and answered as if it was not.
		return answered
	}
	switch e.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.OutOfRange:
		return refused
	}
	return unknown
}

// isRefusal reports whether a member that could not be asked has refused: it was there.
func isRefusal(err error) bool {
	var unsent *noAnswerError
	if errors.As(err, &unsent) {
		return strings.Contains(unsent.reason, "handshake failed") // of TLS
	}
	return outcomeOf(err) != unknown
}

// leaseGone reports whether etcd says that a lease does not exist.
func leaseGone(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

// explain puts an error into the words of package locker. It matches
// [driver.ErrUnavailable] if trying again may help. where names the cluster, and
// prefix what the user has to have rights on.
func explain(where, prefix string, err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("%s: %w: grant the user readwrite on the prefix %s", where, err, prefix)
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return fmt.Errorf("%s: %w: it asks for a user and a password", where, err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%s: %w: its store is full (alarm NOSPACE): compact and defragment it, "+
			"raise --quota-backend-bytes, then run etcdctl alarm disarm: %w", where, err, driver.ErrUnavailable)
	case outcomeOf(err) == refused:
		return fmt.Errorf("%s: %w", where, err)
	}
	// A deadline in it is not the caller's: it is not wrapped.
	return fmt.Errorf("%s: %v: %w", where, err, driver.ErrUnavailable) //nolint:errorlint // on purpose
}
