package driver

import (
	"context"
	"log/slog"
	"time"
)

// Opener makes a [Backend] from a URL. It reads the parameters that it knows from u, calls u.Check, and
// only then connects. It returns an error if the service is unreachable or refuses the client. The
// Client that uses the Backend closes it.
type Opener func(ctx context.Context, u *URL, s Settings) (Backend, error)

// Openers maps URL schemes to backends, for locker.Open. Every backend has a variable of this type with
// its own schemes, and package backends has one with all schemes.
type Openers map[string]Opener

// Settings are what an [Opener] may need to know about the Client that will use the Backend.
type Settings struct {
	TTL       time.Duration // of most leases; 0: [DefaultTTL], within the backend's bounds
	Prefix    string        // before every name
	TokenBase uint64        // added to every token
	Logger    *slog.Logger  // nil: nothing is logged

	_ struct{}
}
