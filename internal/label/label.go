// Package label makes the label with which a program tells others that it holds a lock.
package label

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Of returns program@host[pid], with the program of these arguments and the PID of this process. What cannot
// be printed is a question mark, and the beginning of what is longer than limit bytes is left out.
func Of(args []string, limit int) string {
	program := "unknown-program" // it may be started without any argument
	if len(args) > 0 {
		program = filepath.Base(args[0])
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	text := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, program+"@"+host+"["+strconv.Itoa(os.Getpid())+"]")
	for len(text) > limit {
		_, size := utf8.DecodeRuneInString(text)
		text = text[size:]
	}
	return text
}
