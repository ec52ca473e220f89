// Package oneline joins errors, as errors.Join does, with a text of one line: a log has one line for
// each error.
package oneline

import (
	"slices"
	"strings"
)

// Join returns an error that matches all of errs, or nil if each is nil. One alone is returned as it is.
func Join(errs ...error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return &joined{errs}
}

type joined struct{ errs []error }

func (j *joined) Error() string {
	texts := make([]string, len(j.errs))
	for i, err := range j.errs {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (j *joined) Unwrap() []error { return j.errs }
