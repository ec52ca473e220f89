package file

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	suffix = ".lock"
	// maxFileName is the limit of eCryptfs, which encrypted home directories
	// are made of. Others end at 255.
	maxFileName = 143
)

// fileName returns the name of the file for the lock called name. It is
// injective, also where case is ignored and Unicode normalized: it consists of
// small letters, digits and some punctuation, and what it escapes begins with a
// character that nothing else begins with. Only a shortened one contains a ~.
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
