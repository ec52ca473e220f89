package conformance

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
)

// check proves one promise.
type check struct {
	// Name is the check's name: lower case, words joined by hyphens.
	Name string
	// Promise is what it proves, in one sentence.
	Promise string

	unasked string         // why the backend does not promise it; "": it does
	missing string         // the hook that it needs and the harness lacks
	run     func(s *trial) // nil: histories prove it, with the hook
}

// allChecks returns all checks for a subject, in the order in which they run: first those that best
// explain why others would fail too.
func allChecks(s subject) []check {
	unless := func(is bool, why string) string {
		if is {
			return ""
		}
		return why
	}
	wide, afterTTL := s.Scope >= locker.ScopeNetwork, s.DeadHolder != locker.RecoveryAtOnce
	noNetwork := unless(wide || s.Cut != nil, fmt.Sprintf("there is no network within the scope of one %v", s.Scope))
	noCut := unless(s.Cut != nil, "Cut")
	deadHolder := checkDeadHolder
	if s.Victim == nil {
		deadHolder = nil
	}
	return []check{
		{
			Name: "claims",
			Promise: "Guarantees are complete, in range, the same for every client and at all times, and " +
				"need no I/O.",
			run: checkClaims,
		},
		{
			Name: "url",
			Promise: "A client opened by URL competes with clients made by New, and refuses unknown " +
				"parameters.",
			unasked: unless(s.URL != "", "the harness has no URL"),
			run:     checkURL,
		},
		{
			Name: "close",
			Promise: "Close succeeds, even if called twice, and ends waits; after it, Acquire returns " +
				"ErrClosed.",
			run: checkClose,
		},
		{
			Name:    "wake-up",
			Promise: "A release wakes a waiter of another client well before the TTL.",
			run:     checkWakeUp,
		},
		{
			Name:    "nothing-piles-up",
			Promise: "Ended waits leave no goroutines behind while the client lives.",
			run:     checkNothingPilesUp,
		},
		{
			Name:    "exclusion",
			Promise: "One waiting client at a time holds a name, and each gets its turn, again and again.",
			run:     checkExclusion,
		},
		{
			Name:    "names",
			Promise: "Any UTF-8 name up to 512 bytes works, and no two names are one lock (R18).",
			run:     checkNames,
		},
		{
			Name: "dead-holder",
			Promise: "A dead holder's lock is free when DeadHolder and DeadHolderSlack say, and not before " +
				"its lease has ended.",
			unasked: cmp.Or(unless(s.DeadHolder != locker.RecoveryNone, "DeadHolder is none"),
				unless(s.Scope != locker.ScopeProcess, "within one process, a dead holder takes the service with it")),
			missing: unless(s.Victim != nil || afterTTL && s.Cut != nil, unless(!(afterTTL && wide), "Cut")+
				unless(afterTTL && wide, "Victim")),
			run: deadHolder,
		},
		{
			Name: "prompt",
			Promise: "A backend that claims Prompt returns within 100 ms after its context ended, " +
				"whatever the network does (R8).",
			unasked: cmp.Or(unless(s.prompt, "the backend is not Prompt"), noNetwork),
			missing: noCut,
			run:     checkPrompt,
		},
		{
			Name: "close-given",
			Promise: "Close ends nothing that the backend's user passed to it: another backend made from " +
				"it continues.",
			unasked: unless(s.Pair != nil, "the harness has no Pair: its backends are not made from anything that their user owns"),
			run:     checkCloseGiven,
		},
		{
			Name:    "cut-off",
			Promise: "The calls of a client that is cut off report an outage, end in time, and leave nothing (R7, R8, R17).",
			unasked: noNetwork,
			missing: noCut,
		},
		{
			Name:    "deletion",
			Promise: "A holder whose lock was deleted behind its back learns of it (R12).",
			unasked: unless(s.Scope > locker.ScopeProcess || s.Delete != nil,
				"nobody can reach the memory of one process from outside"),
			missing: unless(s.Delete != nil, "Delete"),
		},
		{
			Name: "restart",
			Promise: "A held lock is still held after all servers were killed and restarted (SurvivesRestart), " +
				"and tokens keep increasing.",
			unasked: unless(s.SurvivesRestart || s.Fencing >= locker.FencingUnlessRewind && wide,
				"SurvivesRestart is false, and a restart may lose the data that tokens need"),
			missing: unless(s.Restart != nil, "Restart"),
		},
		{
			Name: "failover",
			Promise: "A held lock is still held after another server has taken over (SurvivesFailover), " +
				"and tokens keep increasing.",
			unasked: unless(s.SurvivesFailover, "SurvivesFailover is false"),
			missing: unless(s.Failover != nil, "Failover"),
		},
		{
			Name:    "server-crashes",
			Promise: "With as many servers down as ServerCrashes says, held locks stay held and free ones are granted.",
			unasked: unless(s.ServerCrashes > 0, "ServerCrashes is 0"),
			missing: unless(s.Crash != nil, "Crash"),
		},
		{
			Name:    "clock-jump",
			Promise: "A step of the servers' wall clocks gives a held lock to nobody else (SurvivesClockJump).",
			unasked: cmp.Or(unless(s.SurvivesClockJump, "SurvivesClockJump is false"),
				unless(s.Exclusion < locker.ExclusionKernel || s.JumpClock != nil,
					fmt.Sprintf("exclusion rests on %v, where no clock is involved", s.Exclusion))),
			missing: unless(s.JumpClock != nil, "JumpClock"),
		},
		{
			Name: many,
			Promise: "A client holds a thousand names, hundreds wait, and at most MaxSharers share one name: all get " +
				"their own answers, and List reports each name once.",
			run: checkMany,
		},
	}
}

// named returns the checks with these names, in the order in which they run; without names, all.
func named(names []string) (checks []check, err error) {
	all := allChecks(subject{})
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		if name != histories && !slices.ContainsFunc(all, func(c check) bool { return c.Name == name }) {
			return nil, fmt.Errorf("there is no check %q", name)
		}
	}
	return slices.DeleteFunc(all, func(c check) bool { return !slices.Contains(names, c.Name) }), nil
}

// unplayed is why histories do not prove a check that is left to them; "": they do.
func (h Harness) unplayed(c check) string {
	switch {
	case c.run != nil:
		return ""
	case c.Name == "deletion" && h.Unproven[histDelete] != "":
		return h.Unproven[histDelete]
	}
	return h.Unproven[histories]
}

// needHistories reports whether histories are named, or alone prove a claimed check with one of these
// names. Without names, everything is asked for.
func (h Harness) needHistories(ctx context.Context, names []string) (need bool) {
	if len(names) == 0 || slices.Contains(names, histories) || h.validate() != nil {
		return len(names) == 0 || slices.Contains(names, histories)
	}
	r := newRecorder(ctx, histories)
	_ = r.Do(func() {
		need = slices.ContainsFunc(allChecks(h.subject(r)), func(c check) bool {
			left := c.run == nil && c.unasked == "" && c.missing == "" && h.unplayed(c) == ""
			return left && slices.Contains(names, c.Name)
		})
	})
	r.cancel()
	r.Close()
	return need
}

// validate reports what is wrong with the harness itself.
func (h Harness) validate() error {
	if h.New == nil {
		return fmt.Errorf("the Harness has no New, which connects to the service")
	}
	if h.TTL < 0 {
		return fmt.Errorf("Harness.TTL is %v: give the lease time for the checks, or 0 for the default", h.TTL)
	}
	if h.URL != "" && h.Open == nil {
		return fmt.Errorf("the Harness has a URL and no Open to open it with")
	}
	names := []string{histories, histDelete, histLabels, histMinHold, sharedMinHold, manySharers}
	for _, c := range allChecks(subject{}) {
		names = append(names, c.Name)
	}
	for name, why := range h.Unproven {
		if !slices.Contains(names, name) {
			return fmt.Errorf("Harness.Unproven names %q, which is not a check: there are %s",
				name, strings.Join(names, ", "))
		}
		if strings.TrimSpace(why) == "" {
			return fmt.Errorf("Harness.Unproven gives no reason for %q", name)
		}
	}
	for fact, why := range h.Untold {
		op, what, _ := strings.Cut(fact, " ")
		if op != string(opInspect) && op != string(opList) || !slices.Contains(told, what) || strings.TrimSpace(why) == "" {
			return fmt.Errorf("Harness.Untold has %q: %q; give Inspect or List with one of %s, and why", fact, why,
				strings.Join(told, ", "))
		}
	}
	return nil
}

// subject decides whether a check applies.
type subject struct {
	Harness
	locker.Guarantees
	prompt bool
}

// subject asks a client of the service what it promises.
func (h Harness) subject(t T) subject {
	b := h.New(t)
	if b == nil {
		t.Errorf("the harness returned a nil Backend from New, and did not say why with t.Errorf and t.FailNow")
		t.FailNow()
	}
	defer func() { _ = b.Close() }()
	p, ok := b.(driver.Prompt)
	return subject{Harness: h, Guarantees: b.Guarantees(), prompt: ok && p.Prompt()}
}
