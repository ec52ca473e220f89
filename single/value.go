package single

import (
	"strconv"
	"strings"
)

// value is what stands in a lock's key, read. The scripts write it: see value.lua in
// internal/redisconn.
type value struct {
	token uint64 // 0: not known, since another program wrote it
	owner string // the owner value that has the lock; "": nobody has it
	turn  string // nobody has it, and it is kept for the next attempt of this client

	// shared: those have it, if any, who stand beside it, all with the token.
	shared bool
}

// tokenDigits is how long a token is in a value, so that the owner begins at one place.
const tokenDigits = 16

func readValue(text string) value {
	first, rest, _ := strings.Cut(text, " ")
	switch first {
	case "turn":
		return value{turn: rest}
	case "shared":
		digits, _, _ := strings.Cut(rest, " ")
		token, _ := strconv.ParseUint(digits, 10, 64)
		return value{token: token, shared: true}
	}
	if len(first) == tokenDigits {
		if token, err := strconv.ParseUint(first, 10, 64); err == nil {
			return value{token: token, owner: rest}
		}
	}
	return value{owner: text}
}
