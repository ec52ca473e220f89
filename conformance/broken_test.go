package conformance_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/internal/lab"
)

// brokenForChecks are backends with a flaw that a check is there for, and a part of what it says.
var brokenForChecks = []struct {
	flaw  flaw
	kind  kind
	check string
	seen  string
}{
	{claimsEverything, poor, "claims", "RestsOn is empty"},
	{claimsByMood, rich, "claims", "one client claims"},
	{claimsAsk, poor, "claims", "without a connection, Guarantees took"},
	{opensAnother, poor, "url", "opened by URL returned"},
	{refusesOwner, poor, "exclusion", "TryLock of a name that nobody had failed"},
	{grantsAlways, poor, "exclusion", "held the name at once"},
	{vagueRefusal, poor, "exclusion", "Lock failed under contention"},
	{wakeLost, rich, "wake-up", "after the release, with a TTL of"},
	{forgetsWaiters, queued, "exclusion", "did not get its turn"},
	{promptLater, poor, "prompt", "after its context ended"},
	{promisesPrompt, poor, "prompt", "after its context ended"},
	{passHangs, rich, "prompt", "Pass returned"},
	{pilesUp, poor, "nothing-piles-up", "have left"},
	{deathUnnoticed, queued, "dead-holder", "was not free"},
	{foldsCase, poor, "names", "is held although nobody locked it"},
	{closeForgets, poor, "close", "Acquire of a closed Backend returned <nil>"},
	{closeTwicePanics, poor, "close", "panic: close of closed channel"},
	{closeTwiceFails, poor, "close", "the second Close failed: use of closed connection"},
	{closeIsHeld, queued, "close", "waited when its Backend was closed returned"},
	{closesUsers, poor, "close-given", "by the other failed"},
	{millisAsNanos, poor, "exclusion", "Unlock failed"},
	{claimsNonsense, poor, "claims", "Scope is none"},
	{claimsNonsense, poor, "claims", "Backend is \"the sim\""},
	{opensFirst, poor, "url", "was refused with"},
	{asciiNames, poor, "names", "invalid name"},
	{namesByClient, poor, "names", "TryLock of another client returned <nil>"},
	{sharersUnbounded, poor, "many", "beyond 4096, number 0 of 4: it returned <nil>"},
	{boundIsHeld, poor, "many", "beyond 4096, number 0 of 4: it returned the lock is held"},
	{countsThoseWhoLeft, poor, "many", "Acquire of a sharer after another has left, number"},
	{breaksOnePage, rich, "many", "that Break has removed, number"},
	{tellsOnePageLost, queued, "many", "Lost was called for 1000"},
	{listsOnePage, rich, "many", "List of 1100 names reported"},
	{listsBordersTwice, rich, "many", "twice"},
	{countsWaitersInAByte, queued, "many", "does not report how many wait"},
	{tellsEveryPlace, queued, "many", "and 300 waiters"},
	{holdsInAByte, poor, "many", "in a hurry, number"},
	{hurryTakesRequests, poor, "many", "in a hurry, number"},
	{renewsNoMore, rich, "many", "List of 1100 names reported"},
	{endsFewNames, poor, "many", "were not free"},
	{inspectsFirstSharer, rich, "many", "share a name, and Inspect reported"},
	{waitsTakeRequests, queued, "many", "does not report how many wait"},
	{waitsTakeRequests, kind{name: "queued, without operators", queued: true}, "many", "the last does not get its name"},
}

func checkNamed(t *testing.T, name string) conformance.OneCheck {
	t.Helper()
	for _, c := range conformance.Checks() {
		if c.Name == name {
			return c
		}
	}
	require.Failf(t, "no such check", "%s", name)
	return conformance.OneCheck{}
}

// slow are the flaws that take the most time to be seen, among thousands of sharers or holds: make prove shows them.
var slow = []flaw{sharersUnbounded, boundIsHeld, countsThoseWhoLeft, breaksOnePage, holdsInAByte}

func TestBrokenBackendsAreRejectedByTheCheckThatIsMeantForThem(t *testing.T) { rejectBroken(t, false) }

func TestProveSlowBrokenBackendsAreRejectedByTheCheckThatIsMeantForThem(t *testing.T) {
	lab.NeedProve(t)
	rejectBroken(t, true)
}

func rejectBroken(t *testing.T, slowly bool) {
	t.Helper()
	failed, shown := map[string]bool{}, map[flaw]bool{}
	for _, b := range brokenForChecks {
		failed[b.check], shown[b.flaw] = true, true
		if slowly != slices.Contains(slow, b.flaw) {
			continue
		}
		t.Run(b.check+"/"+b.flaw.what, func(t *testing.T) {
			r := prove(t, b.flaw, b.kind, checkNamed(t, b.check))
			require.Equal(t, conformance.Failed, r.Outcome, "%s", r.Reason)
			failures := strings.Join(r.Failures, "\n")
			t.Log(failures)
			for _, part := range []string{b.seen, "broken promise: ", "probable cause: "} {
				assert.Contains(t, failures, part)
			}
		})
	}
	for _, c := range conformance.Checks() {
		hook := []string{"cut-off", "deletion", "restart", "failover", "server-crashes", "clock-jump"} // it sees that it is there
		assert.True(t, failed[c.Name] || slices.Contains(hook, c.Name), "nothing shows that check %s can fail", c.Name)
	}
	for _, f := range flaws {
		assert.True(t, shown[f] || !f.byHand, "no check is there for %q", f.what)
	}
}
