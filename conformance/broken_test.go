package conformance_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/conformance"
)

// broken is a backend with a flaw, and the checks that are there to find it.
// What is seen of it is said by a part of a failure.
type broken struct {
	flaw  flaw
	kind  kind
	check string
	seen  string
}

// brokenBackends are those that histories have to reject, and those that a check is there for.
var brokenBackends = []broken{
	{flaw: claimsEverything, kind: poor},
	{flaw: claimsByMood, kind: rich},
	{flaw: claimsAsk, kind: poor},
	{flaw: claimsQueue, kind: poor},
	{flaw: inspectsNothing, kind: rich},
	{flaw: inspectsHolderAsWaiter, kind: queued},
	{flaw: inspectEnds, kind: rich},
	{flaw: opensAnother, kind: poor},
	{flaw: grantsAlways, kind: poor},
	{flaw: remainsTooLong, kind: poor},
	{flaw: vagueRefusal, kind: poor},
	{flaw: holdBesideRefusal, kind: poor},
	{flaw: tryWaits, kind: poor},
	{flaw: reentrant, kind: poor},
	{flaw: labelIsOwner, kind: poor},
	{flaw: oneAtATime, kind: queued},
	{flaw: waitsOnDeleted, kind: queued},
	{flaw: wakeLost, kind: rich},
	{flaw: subscribesToNothing, kind: rich},
	{flaw: subscribesLate, kind: rich},
	{flaw: missedNotTold, kind: rich},
	{flaw: forgetsWaiters, kind: queued},
	{flaw: lastInFirstOut, kind: queued},
	{flaw: leavesGhost, kind: queued},
	{flaw: hidesCancel, kind: queued},
	{flaw: placesStay, kind: queued},
	{flaw: deadWaitersStay, kind: queued},
	{flaw: hidesHeld, kind: queued},
	{flaw: silentQueue, kind: queued},
	{flaw: ignoresContext, kind: queued},
	{flaw: waitsOn, kind: queued},
	{flaw: ignoresContext, kind: poor},
	{flaw: sendsWhenCancelled, kind: poor},
	{flaw: holdDiesWithContext, kind: poor},
	{flaw: minHoldIgnored, kind: rich},
	{flaw: minHoldShort, kind: rich},
	{flaw: minHoldRenewed, kind: rich},
	{flaw: minHoldPassed, kind: rich},
	{flaw: minHoldEndless, kind: rich},
	{flaw: minHoldSticks, kind: rich},
	{flaw: minHoldOfClock, kind: rich},
	{flaw: minHoldJumps, kind: rich},
	{flaw: listsContains, kind: rich},
	{flaw: listsLike, kind: rich},
	{flaw: listsNothing, kind: rich},
	{flaw: listsFree, kind: rich},
	{flaw: requestsUnbounded, kind: poor},
	{flaw: breaksNothing, kind: rich},
	{flaw: breaksNext, kind: rich},
	{flaw: breaksAndRefuses, kind: rich},
	{flaw: breaksQueue, kind: rich},
	{flaw: renewsNothing, kind: poor},
	{flaw: renewalStale, kind: poor},
	{flaw: renewsAlone, kind: poor},
	{flaw: renewalHangs, kind: poor},
	{flaw: renewalMadeUp, kind: poor},
	{flaw: renewAcquires, kind: poor},
	{flaw: outageIsLoss, kind: poor},
	{flaw: deletionUnnoticed, kind: poor},
	{flaw: deletionUnnoticed, kind: queued},
	{flaw: releaseForgets, kind: poor},
	{flaw: releaseLater, kind: poor},
	{flaw: releaseInContextOfAcquire, kind: poor},
	{flaw: releaseAlwaysFine, kind: poor},
	{flaw: releaseHangs, kind: poor},
	{flaw: releaseMadeUp, kind: poor},
	{flaw: noOwnerCheck, kind: poor},
	{flaw: endOfOwner, kind: poor},
	{flaw: forgetsOwners, kind: poor},
	{flaw: tokenPerRequest, kind: rich},
	{flaw: acquireInTwoSteps, kind: poor},
	{flaw: releaseInTwoSteps, kind: poor},
	{flaw: sessionReleaseInTwoSteps, kind: poor},
	{flaw: renewInTwoSteps, kind: poor},
	{flaw: expiryInTwoSteps, kind: poor},
	{flaw: neverExpires, kind: poor},
	{flaw: grantInSteps, kind: poor},
	{flaw: leavesNodes, kind: poor},
	{flaw: grantMadeUp, kind: poor},
	{flaw: hidesWhy, kind: queued},
	{flaw: thirdStays, kind: queued},
	{flaw: leavesGrant, kind: queued},
	{flaw: promisesPrompt, kind: poor},
	{flaw: leavesLateGrant, kind: queued},
	{flaw: pilesUp, kind: poor},
	{flaw: wakesOne, kind: rich},
	{flaw: stopWaits, kind: rich},
	{flaw: roundsRenewal, kind: poor},
	{flaw: tokenOfClient, kind: rich},
	{flaw: keepsSession, kind: queued},
	{flaw: clientClock, kind: poor},
	{flaw: sinceFromReply, kind: poor},
	{flaw: sinceFromRenewal, kind: poor},
	{flaw: sinceFromWait, kind: queued},
	{flaw: sinceFromBeat, kind: shared},
	{flaw: boastsTTL, kind: poor},
	{flaw: noDeadline, kind: poor},
	{flaw: negativeDrift, kind: poor},
	{flaw: roundsTTL, kind: poor},
	{flaw: shortTTL, kind: poor},
	{flaw: overflowsTTL, kind: poor},
	{flaw: forgetsVoid, kind: queued},
	{flaw: deathUnnoticed, kind: queued},
	{flaw: tokenUnclaimed, kind: poor},
	{flaw: tokenLater, kind: rich},
	{flaw: tokenTwice, kind: rich},
	{flaw: tokenTooHigh, kind: rich},
	{flaw: tokenWithLock, kind: rich},
	{flaw: raisesNothing, kind: rich},
	{flaw: raiseSetsBack, kind: rich},
	{flaw: raiseTwice, kind: rich},
	{flaw: raiseEnds, kind: rich},
	{flaw: raisesAnyway, kind: rich},
	{flaw: forgetsTokens, kind: rich},
	{flaw: tokenOfExpired, kind: rich},
	{flaw: passRemains, kind: rich},
	{flaw: passSinceReply, kind: rich},
	{flaw: passesAnyway, kind: rich},
	{flaw: passesSame, kind: rich},
	{flaw: passesForEver, kind: rich},
	{flaw: passesSilently, kind: rich},
	{flaw: passLeaves, kind: rich},
	{flaw: foldsCase, kind: poor},
	{flaw: cleansPath, kind: poor},
	{flaw: cutsNames, kind: poor},
	{flaw: dropsPrefixes, kind: poor},
	{flaw: leavesGhost, kind: poor},
	{flaw: ghostAfterReset, kind: poor},
	{flaw: timeoutIsHeld, kind: poor},
	{flaw: slownessIsHeld, kind: poor},
	{flaw: outageIsHeld, kind: poor},
	{flaw: closesUsers, kind: poor},
	{flaw: closeForgets, kind: poor},
	{flaw: closeTwicePanics, kind: poor},
	{flaw: closeHangs, kind: poor},
	{flaw: leaksGoroutine, kind: poor},
	{flaw: forgetsLocks, kind: rich},
	{flaw: forgetsRenewal, kind: rich},
	{flaw: crashTakesAll, kind: rich},
	{flaw: wallClock, kind: rich},
	{flaw: sharesUnderWriter, kind: poor},
	{flaw: sharesUnderWriter, kind: rich},
	{flaw: writesBesideSharers, kind: poor},
	{flaw: writesBesideSharers, kind: queued},
	{flaw: releasesAllSharers, kind: rich},
	{flaw: notesWithoutWait, kind: poor},
	{flaw: sharersHaveOneTTL, kind: poor},
	{flaw: sharersHaveLongestTTL, kind: rich},
	{flaw: sharersHaveLongestTTL, kind: poor},
	{flaw: sharersByClock, kind: poor},
	{flaw: sharerSinceReply, kind: poor},
	{flaw: sharerMinHoldIgnored, kind: rich},
	{flaw: renewalSharesAgain, kind: rich},
	{flaw: releasesSharersOfName, kind: poor},
	{flaw: sharersByWallClock, kind: rich},
	{flaw: forgetsSharers, kind: rich},
	{flaw: yieldsToWriters, kind: rich},
	{flaw: noGate, kind: poor},
	{flaw: noGate, kind: rich},
	{flaw: noGate, kind: queued},
	{flaw: gateRefusesSharers, kind: poor},
	{flaw: notesWithoutWait, kind: rich},
	{flaw: notesLast, kind: poor},
	{flaw: notesOfOwners, kind: poor},
	{flaw: asksTooLate, kind: poor},
	{flaw: leaveForgets, kind: poor},
	{flaw: leaveOpens, kind: poor},
	{flaw: leaveSilent, kind: rich},
	{flaw: grantKeepsNote, kind: poor},
	{flaw: remainsOfSharers, kind: rich},
	{flaw: sharersOvertake, kind: queued},
	{flaw: leavesSharer, kind: queued},
	{flaw: tokenPerSharer, kind: rich},
	{flaw: staleGeneration, kind: rich},
	{flaw: generationOfFounder, kind: rich},
	{flaw: sharerTokenUnclaimed, kind: tokenless},
	{flaw: sharesInTwoSteps, kind: poor},
	{flaw: renewalSharesAgain, kind: poor},
	{flaw: releasesAllSharers, kind: poor},
	{flaw: ownerInBoth, kind: poor},
	{flaw: keyOfSharers, kind: poor},
	{flaw: inspectsNoSharers, kind: rich},
	{flaw: inspectsOneSharer, kind: rich},
	{flaw: breaksOneSharer, kind: rich},
	{flaw: sharersSilent, kind: rich},
	{flaw: cutsOwner, kind: poor},
	{flaw: refusesOwner, kind: poor},
	{flaw: comparesOwner32, kind: poor},
	{flaw: grantUncommitted, kind: poor},
	{flaw: refusalUncommitted, kind: poor},
	{flaw: releaseUncommitted, kind: poor},
	{flaw: nanosAsMillis, kind: poor},
	{flaw: secondsAsMillis, kind: poor},
	{flaw: millisAsNanos, kind: poor},
	{flaw: claimsNonsense, kind: poor},
	{flaw: inspectsGibberish, kind: rich},
	{flaw: inspectsSeconds, kind: rich},
	{flaw: inspectsCounter, kind: rich},
	{flaw: inspectsNoWaiters, kind: queued},
	{flaw: inspectsThePast, kind: rich},
	{flaw: opensFirst, kind: poor},
	{flaw: shortensTTL, kind: poor},
	{flaw: renewalShort, kind: poor},
	{flaw: sinceFuture, kind: poor},
	{flaw: lostTooOften, kind: poor},
	{flaw: releasesAnybody, kind: poor},
	{flaw: countsOwners, kind: poor},
	{flaw: tokenMissing, kind: rich},
	{flaw: asciiNames, kind: poor},
	{flaw: namesByClient, kind: poor},
	{flaw: vagueOutage, kind: poor},
	{flaw: neverReconnects, kind: poor},
	{flaw: neverReconnects, kind: rich},
	{flaw: releaseTakesOutageForLoss, kind: poor},
	{flaw: leavesNodes, kind: rich},
	{flaw: closeTwiceFails, kind: poor},
}

var brokenForChecks = []broken{
	{claimsEverything, poor, "claims", "RestsOn is empty"},
	{claimsByMood, rich, "claims", "one client claims"},
	{claimsAsk, poor, "claims", "without a connection, Guarantees took"},
	{opensAnother, poor, "url", "opened by URL returned"},
	{grantsAlways, poor, "exclusion", "held the name at once"},
	{vagueRefusal, poor, "exclusion", "Lock failed under contention"},
	{labelIsOwner, poor, "exclusion", "held the name at once"},
	{wakeLost, rich, "wake-up", "after the release, with a TTL of"},
	{subscribesToNothing, rich, "wake-up", "after the release, with a TTL of"},
	{forgetsWaiters, queued, "drain", "did not get its turn"},
	{renewAcquires, poor, "deletion", "the key was deleted"},
	{deletionUnnoticed, poor, "deletion", "the key was deleted"},
	{deletionUnnoticed, queued, "deletion", "the key was deleted"},
	{releaseHangs, poor, "close-cut-off", "are still there"},
	{noOwnerCheck, poor, "owner-exact", "another in its place"},
	{endOfOwner, poor, "owner-exact", "another in its place"},
	{promisesPrompt, poor, "prompt", "after its context had ended"},
	{pilesUp, poor, "nothing-piles-up", "have left"},
	{keepsSession, queued, "close", "was not free"},
	{overflowsTTL, poor, "ttl-bounds", "was asked for and granted as"},
	{neverExpires, poor, "dead-holder", "was not free"},
	{deathUnnoticed, queued, "dead-holder", "was not free"},
	{foldsCase, poor, "names", "is held although nobody locked it"},
	{cleansPath, poor, "names", "is held although nobody locked it"},
	{cutsNames, poor, "names", "is held although nobody locked it"},
	{dropsPrefixes, poor, "prefixes", "TryLock of a name that nobody had failed"},
	{closesUsers, poor, "close-given", "by the other failed"},
	{closeForgets, poor, "close", "Acquire of a closed Backend returned"},
	{closeTwicePanics, poor, "close", "panic"},
	{closeHangs, poor, "close-cut-off", "does not return"},
	{leaksGoroutine, poor, "close", "are still there"},
	{comparesOwner32, poor, "owner-exact", "another in its place"},
	{nanosAsMillis, poor, "dead-holder", "was not free"},
	{millisAsNanos, poor, "exclusion", "Unlock failed"},
	{claimsNonsense, poor, "claims", "Scope is none"},
	{claimsNonsense, poor, "claims", "Backend is \"the sim\""},
	{opensFirst, poor, "url", "was refused with"},
	{shortTTL, poor, "dead-holder", "before the dead holder's lease was over"},
	{shortensTTL, poor, "ttl-bounds", "granted as"},
	{lostTooOften, poor, "deletion", "Lost was called"},
	{releasesAnybody, poor, "owner-exact", "another in its place"},
	{asciiNames, poor, "names", "invalid name"},
	{namesByClient, poor, "names", "TryLock of another client returned <nil>"},
	{namesByClient, poor, "prefixes", "TryLock of"},
	{namesByClient, poor, "exclusion", "held the name at once"},
	{releaseInContextOfAcquire, poor, "close", "Close of a Client failed"},
	{closeTwiceFails, poor, "close", "Close of a Backend failed"},
	{ignoresContext, queued, "close-cut-off", "are still there"},
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

func TestBrokenBackendsAreRejectedByTheCheckThatIsMeantForThem(t *testing.T) {
	for _, b := range brokenForChecks {
		t.Run(b.check+"/"+string(b.flaw), func(t *testing.T) {
			r := prove(t, b.flaw, b.kind, checkNamed(t, b.check))
			require.Equal(t, conformance.Failed, r.Outcome, "%s", r.Reason)
			failures := strings.Join(r.Failures, "\n")
			t.Log(failures)
			require.NotEmpty(t, b.seen, "what is to be seen: any failure would do otherwise")
			assert.Contains(t, failures, b.seen)
			assert.Contains(t, failures, "broken promise: ")
			assert.Contains(t, failures, "probable cause: ")
		})
	}
}

func TestEveryCheckIsFailedBySomeBrokenBackend(t *testing.T) {
	failed := make(map[string]bool)
	for _, b := range brokenForChecks {
		failed[b.check] = true
	}
	for _, c := range conformance.Checks() {
		if slices.Contains([]string{"restart", "failover", "server-crashes", "clock-jump", "client-clock"}, c.Name) {
			continue // they see to it that a claim has its hook
		}
		assert.True(t, failed[c.Name], "nothing shows that check %s can fail", c.Name)
	}
}
