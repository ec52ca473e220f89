package main

import (
	"regexp"
	"strings"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// The errors of the library name its calls and options, and each of its layers adds the server. What people read
// names flags and locks, and the server once.
var (
	call    = regexp.MustCompile(`^locker: (?:(?:open|new|check|list|close): |[a-z ]+ ("(?:[^"\\]|\\.)*": ))?`)
	service = regexp.MustCompile(`^[a-z+]+://(?:\*\*\*@)?([^/,\s]+)\S*: `)
	hours   = regexp.MustCompile(`\b(?:\d+h)?\d+m0s\b`)
	noise   = []struct {
		text *regexp.Regexp
		with string
	}{
		{regexp.MustCompile(`connection error: desc = "(?:transport: )?(?:[Ee]rror while dialing: )?([^"]*)"`), "$1"},
		{regexp.MustCompile(`failed to connect: (?:.* )?\S+ \(\S+\): dial error: `), "failed to connect: "},
		{regexp.MustCompile(`\b(?:dial|read|write) (?:tcp|unix) \S+: `), ""},
		{regexp.MustCompile(`: connect: `), ": "},
		{regexp.MustCompile(`: (?:inspect|identify|acquire|renew|release|open): `), ": "},
		{regexp.MustCompile(`\binvalid argument: |: unsupported operation| \(unsupported operation\)`), ""},
		{regexp.MustCompile(`: context deadline exceeded$|: file does not exist$`), ""},
		{regexp.MustCompile(`\bcontext deadline exceeded`), "no answer in time"},
		{regexp.MustCompile(`\bno answer in time \((.*no answer in time)\)`), "$1"},
		{regexp.MustCompile(`\bOptions\.TTL is`), "--ttl is"},
		{regexp.MustCompile(`\bMaxHold of (\S+) is reached`), "the longest hold, $1, has passed"},
		{regexp.MustCompile(`\bstrconv\.Parse[A-Z]\w+: parsing "[^"]*": .*?( \(|$)`), "write a whole number$1"},
	}
)

// words is an error's text in the words of this command.
func words(text string) string {
	text = call.ReplaceAllString(text, "$1")
	for _, n := range noise {
		text = n.text.ReplaceAllString(text, n.with)
	}
	text = hours.ReplaceAllStringFunc(text, func(d string) string {
		if d, err := time.ParseDuration(d); err == nil {
			return clock.Text(d)
		}
		return d
	})
	if of := service.FindStringSubmatch(text); of != nil && strings.Contains(text[len(of[0]):], of[1]) {
		text = text[len(of[0]):]
	}
	return text
}
