package driver

import (
	"math"
	"time"
)

// The greatest lengths of names, in bytes of UTF-8.
const (
	MaxNameLen   = 512 // of a lock's name
	MaxPrefixLen = 128 // of the prefix that a client puts before it
	MaxLabelLen  = 128 // of a label
)

// MaxToken is the highest fencing token that a backend may give: 2⁶³-1.
const MaxToken = math.MaxInt64

// MaxSharers is how many sharers can hold one name together.
const MaxSharers = 4096

// DefaultTTL is the TTL of a lease if none is given and the backend's bounds allow it.
const DefaultTTL = 30 * time.Second

// The bounds of a TTL if the backend has none. Timers cannot keep a shorter lease; a longer one is most
// likely a mistake of units.
const (
	MinTTL = 10 * time.Millisecond
	MaxTTL = 366 * 24 * time.Hour
)
