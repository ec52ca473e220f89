package grpcguard

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/carried"
)

// The fields of the google.rpc.ErrorInfo of a refusal.
const (
	Domain        = "github.com/golockers/locker/fencing"
	ReasonStale   = "STALE_FENCING_TOKEN"
	ReasonMissing = "NO_FENCING_TOKEN"
)

// toStatus converts an error to a status if it is a refusal or the end of ctx.
func toStatus(err error) error {
	info := &errdetails.ErrorInfo{Domain: Domain}
	var stale *fencing.StaleError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &stale):
		info.Reason = ReasonStale
		info.Metadata = map[string]string{
			"resource": strings.ToValidUTF8(stale.Resource, "?"), "token": stale.Token.String(),
			"mark": stale.Mark.String(),
		}
		err = stale // without the errors that wrap it
	case errors.Is(err, fencing.ErrStale):
		info.Reason = ReasonStale
	case errors.Is(err, fencing.ErrMissing):
		info.Reason = ReasonMissing
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case errors.Is(err, locker.ErrInvalid) && status.Code(err) == codes.Unknown:
		return status.Error(codes.InvalidArgument, err.Error())
	default:
		return err
	}
	s := status.New(codes.FailedPrecondition, strings.ToValidUTF8(err.Error(), "?"))
	if detailed, err := s.WithDetails(info); err == nil {
		s = detailed
	}
	return s.Err()
}

// fromStatus converts a status that is a refusal to an error of package fencing.
func fromStatus(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok || s.Code() != codes.FailedPrecondition {
		return err
	}
	for _, detail := range s.Details() {
		info, ok := detail.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != Domain {
			continue
		}
		switch md := info.GetMetadata(); info.GetReason() {
		case ReasonMissing:
			return &refusalError{fmt.Errorf("grpcguard: %w", fencing.ErrMissing), s}
		case ReasonStale:
			return &refusalError{carried.Refused(md["resource"], md["token"], md["mark"]), s}
		}
	}
	return err
}

// refusalError is a refusal of a server, with its status.
type refusalError struct {
	error
	status *status.Status
}

func (r *refusalError) Unwrap() error              { return r.error }
func (r *refusalError) GRPCStatus() *status.Status { return r.status }
