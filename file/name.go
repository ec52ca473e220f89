package file

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	suffix     = ".lock"
	turnSuffix = ".turn"
	// maxFileName is the limit of eCryptfs, which is used for encrypted home
	// directories. Other file systems have a limit of 255.
	maxFileName = 143
)

// fileName returns the name of the file for the lock called name. It is injective, even on a file
// system that ignores case and normalizes Unicode: file names consist of lower-case letters, digits and
// some punctuation, and every escape begins with a character that is used for nothing else. Only a
// shortened name contains a ~.
func fileName(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case c == '.' && i == 0: // hidden otherwise
			b.WriteString("%2e")
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', strings.IndexByte("-_.,:@=+", c) >= 0:
			b.WriteByte(c)
		case 'A' <= c && c <= 'Z':
			b.WriteByte('^')
			b.WriteByte(c - 'A' + 'a')
		default:
			b.WriteByte('%')
			b.WriteString(hex.EncodeToString([]byte{c}))
		}
	}
	if b.Len()+len(suffix) <= maxFileName {
		return b.String() + suffix
	}
	sum := sha256.Sum256([]byte(name))
	tail := "~" + hex.EncodeToString(sum[:]) + suffix
	return b.String()[:maxFileName-len(tail)] + tail
}
