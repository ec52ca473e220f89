package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/golockers/locker"
)

// check proves one promise.
type check struct {
	// Name is what the check is called: lower case, words joined by hyphens.
	Name string
	// Promise is what it proves, in a sentence.
	Promise string

	// unasked says why a backend does not promise it; "": it does. nil: all
	// backends do.
	unasked func(s subject) string
	// missing names the hook that the check cannot do without and the harness
	// does not have; "": nothing is missing. nil: it needs none.
	missing func(s subject) string
	// rare: what is missing is hard to have. The promise is told as unproven
	// then, and does not fail.
	rare bool
	run  func(s *trial)
}

// allChecks returns all checks, in the order in which they are run: first those
// that explain best why others would fail too.
func allChecks() []check {
	return slices.Concat(
		claimChecks(),
		urlChecks(),
		waitingChecks(),
		exclusionChecks(),
		ttlChecks(),
		ownerChecks(),
		nameChecks(),
		expiryChecks(),
		promptChecks(),
		closeChecks(),
		serverChecks(),
	)
}

// named returns the checks with these names, in the order in which they are run; without
// names, all.
func named(names []string) (checks []check, err error) {
	all := allChecks()
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		if name != histories && !slices.ContainsFunc(all, func(c check) bool { return c.Name == name }) {
			return nil, fmt.Errorf("there is no check %q", name)
		}
	}
	for _, c := range all {
		if slices.Contains(names, c.Name) {
			checks = append(checks, c)
		}
	}
	return checks, nil
}

// validate reports what is wrong with the harness itself.
func (h Harness) validate() error {
	if h.New == nil {
		return fmt.Errorf("the Harness has no New: it is what connects to the service")
	}
	if h.TTL < 0 {
		return fmt.Errorf("Harness.TTL is %v: give the lease time for the checks, or 0 for the default", h.TTL)
	}
	if h.URL != "" && h.Open == nil {
		return fmt.Errorf("the Harness has a URL and no Openers in Open to open it with")
	}
	names := []string{histories, histDelete, histLabels, histMinHold, sharedMinHold}
	for _, c := range allChecks() {
		names = append(names, c.Name)
	}
	for name, why := range h.Unproven {
		if !slices.Contains(names, name) {
			return fmt.Errorf("Harness.Unproven names %q, which is no check: there are %s",
				name, strings.Join(names, ", "))
		}
		if strings.TrimSpace(why) == "" {
			return fmt.Errorf("Harness.Unproven gives no reason for %q", name)
		}
	}
	return nil
}

// subject is what decides whether a check applies.
type subject struct {
	Harness
	locker.Guarantees
	notifies bool
	prompt   bool
}

func needsCut(s subject) string {
	if s.Cut == nil {
		return "Cut"
	}
	return ""
}

// noNetwork is why a check that cuts the network off does not apply.
func noNetwork(s subject) string {
	if s.Scope < locker.ScopeNetwork && s.Cut == nil {
		return fmt.Sprintf("there is no network within the scope of one %v", s.Scope)
	}
	return ""
}
