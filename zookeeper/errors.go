package zookeeper

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"
)

// kind is what an error of the driver says about a request (R17).
type kind int

const (
	// answered: there is no error, or it is the service's answer about a node that is
	// there or is not, or has another version or children, and nothing was done.
	answered kind = iota
	// refused: nothing was done, and asking again does not help until somebody
	// changes something. An error whose number the driver does not know is one.
	refused
	// unknown: no answer came, or one of a server that has a problem of its own,
	// which passes. The request may have been carried out.
	unknown
)

// kindOf sorts an error of the driver, as the driver returned it.
func kindOf(err error) kind {
	among := func(all ...error) bool {
		return slices.ContainsFunc(all, func(one error) bool { return errors.Is(err, one) })
	}
	switch code := codeOf(err); {
	case err == nil, among(zk.ErrNoNode, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNotEmpty):
		return answered
	case among(zk.ErrNoAuth, zk.ErrAuthFailed, zk.ErrInvalidACL, zk.ErrInvalidPath, zk.ErrBadArguments,
		zk.ErrNoChildrenForEphemerals):
		return refused
	case code == notReadOnly || code == requestTimeout || code == throttled:
		return unknown
	case code == unimplemented || code <= firstAPIError:
		return refused
	}
	return unknown
}

// Numbers of errors for which the driver has no name. Those from -100 on are
// answers about the request; those before it are problems of the server.
const (
	unimplemented    = -6
	ephemeralOnLocal = -120
	firstAPIError    = -100
	notReadOnly      = -119
	requestTimeout   = -122
	throttled        = -127
)

// codeOf returns the number of an error that the driver has no name for; 0 if err
// is not such an error.
func codeOf(err error) int {
	if err == nil {
		return 0
	}
	text, ok := strings.CutPrefix(err.Error(), "unknown error: ")
	if !ok {
		return 0
	}
	code, _ := strconv.Atoi(text)
	return code
}
