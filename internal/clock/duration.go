package clock

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// ParseDuration reads what [Text] writes: a duration as [time.ParseDuration] reads it, with days in front of
// it if there are any, as in 30d or 1d12h.
func ParseDuration(text string) (time.Duration, error) {
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		days, rest = "0", text
	}
	n, err := strconv.ParseUint(days, 10, 16)
	var d time.Duration
	if err == nil && (rest != "" || !ok) {
		d, err = time.ParseDuration(rest)
	}
	if err != nil || ok && (d < 0 || strings.HasPrefix(rest, "+")) || int64(n) > int64((math.MaxInt64-max(d, 0))/day) {
		return 0, errors.New("write a duration such as 500ms, 30s, 1h30m or 30d")
	}
	return time.Duration(n)*day + d, nil
}

// Text is the duration for people: whole days as in 30d, and no zeros at the end, as in 2h.
func Text(d time.Duration) string {
	if d != 0 && d%day == 0 {
		return strconv.Itoa(int(d/day)) + "d"
	}
	text := d.String()
	if cut, ok := strings.CutSuffix(text, "m0s"); ok {
		text = cut + "m"
	}
	if cut, ok := strings.CutSuffix(text, "h0m"); ok {
		text = cut + "h"
	}
	return text
}

// Flag is a duration as the value of a flag of a command.
type Flag time.Duration

func (f *Flag) String() string {
	if *f == 0 {
		return "" // help shows no default
	}
	return Text(time.Duration(*f))
}

// Set parses the value.
func (f *Flag) Set(text string) (err error) {
	d, err := ParseDuration(text)
	*f = Flag(d)
	return err
}

// Type is how help names the value.
func (f *Flag) Type() string { return "DURATION" }
