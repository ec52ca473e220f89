package conformance_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/internal/lab"
)

// broken is a backend with a flaw, and the checks that are there to find it.
// What is seen of it is said by a part of a failure.
type broken struct {
	flaw  flaw
	kind  kind
	check string
	seen  string
}

var brokenBackends = []broken{
	{claimsEverything, poor, "claims", "RestsOn is empty"},
	{claimsByMood, rich, "claims", "one client claims"},
	{claimsAsk, poor, "claims", "without a connection, Guarantees took"},
	{claimsQueue, poor, "context-at-backend", "waited in its queue"},
	{inspectsNothing, rich, "inspect", "of a held name, Inspect"},
	{inspectsHolderAsWaiter, queued, "inspect", "nobody waits"},
	{inspectEnds, rich, "inspect", "of a held name, Inspect"},
	{opensAnother, poor, "url", "opened by URL returned"},

	{grantsAlways, poor, "exclusion", "held the name at once"},
	{grantsAlways, poor, "trylock-held", "was granted"},
	{grantsAlways, poor, "deadline", "was granted"},
	{remainsTooLong, poor, "trylock-held", "remain"},
	{vagueRefusal, poor, "trylock-held", "does not match ErrHeld"},
	{vagueRefusal, poor, "exclusion", "Lock failed under contention"},
	{vagueRefusal, poor, "fifo-in-client", "did not get its turn"},
	{holdBesideRefusal, poor, "trylock-held", "a Hold beside a refusal, three times in a row"},
	{tryWaits, poor, "trylock-held", "took"},
	{reentrant, poor, "no-reentrancy", "through the same backend"},
	{labelIsOwner, poor, "exclusion", "held the name at once"},
	{oneAtATime, queued, "independent-names", "Lock of another failed"},

	{waitsOnDeleted, queued, "handover", "held the name at once"},
	{wakeLost, rich, "wake-up", "after the release, with a TTL of"},
	{wakeLost, rich, "notify", "after a release, wake was not called"},
	{subscribesToNothing, rich, "wake-up", "after the release, with a TTL of"},
	{subscribesToNothing, rich, "notify", "after a release, wake was not called"},
	{subscribesLate, rich, "notify", "after a release, wake was not called"},
	{missedNotTold, rich, "notify", "was not made up for"},
	{forgetsWaiters, queued, "drain", "did not get its turn"},
	{lastInFirstOut, queued, "fifo-across-clients", "got the name in the order [5 4 3 2 1 0]"},
	{leavesGhost, queued, "cancel", "behind a cancelled one did not get the name"},
	{hidesCancel, queued, "context-at-backend", "with Wait returned the error interrupted"},
	{placesStay, queued, "inspect", "has left, and Inspect says 1"},
	{deadWaitersStay, queued, "dead-waiter", "behind a dead one"},
	{hidesHeld, queued, "deadline", "does not match ErrHeld"},
	{silentQueue, queued, "deadline", "behind another caller of its client"},
	{ignoresContext, queued, "context-at-backend", "returned the error <nil>"},
	{waitsOn, queued, "context-at-backend", "did not return"},
	{ignoresContext, poor, "outage", "after its context had ended"},
	{sendsWhenCancelled, poor, "context-at-backend", "was not free"},
	{holdDiesWithContext, poor, "context-at-backend", "TryLock of another returned <nil>"},

	{minHoldIgnored, rich, "min-hold", "before its time"},
	{minHoldShort, rich, "min-hold", "before its time"},
	{minHoldRenewed, rich, "min-hold", "was renewed was free"},
	{minHoldPassed, rich, "min-hold", "was passed was free"},
	{minHoldEndless, rich, "min-hold", "was not free within"},
	{minHoldSticks, rich, "min-hold", "was not free within"},

	{minHoldOfClock, rich, "min-hold", "whose clock is -40s ahead was free"},
	{minHoldOfClock, rich, "min-hold", "was not free within"},
	{minHoldJumps, rich, "clock-jump", "MinHold is kept for too long"},

	{listsContains, rich, "list", "List tells of"},
	{listsLike, rich, "list", "List tells of"},
	{listsNothing, rich, "list", "List tells of []"},
	{listsFree, rich, "list", "List tells of"},
	{breaksNothing, rich, "break", "failed"},
	{breaksNext, rich, "break", "a second Break of a holder that is gone"},
	{breaksAndRefuses, rich, "break", "after a Break that was refused, Renew failed"},
	{breaksQueue, rich, "break", "the holder of another name failed"},

	{renewsNothing, poor, "renewal", "before the holder's Until"},
	{renewsNothing, poor, "no-renew", "before the holder's Until"},
	{renewalStale, poor, "renewal", "was lost"},
	{renewsAlone, poor, "renewal", "renewals at the same time failed"},
	{renewalStale, poor, "no-renew", "did not move Until"},
	{renewalHangs, poor, "renewal-hangs", "Renew did not return"},
	{renewalMadeUp, poor, "renewal-hangs", "was not told of a loss"},
	{renewalMadeUp, poor, "cut-off", "before the holder's Until"},
	{renewAcquires, poor, "deletion", "after its lock was deleted"},
	{renewAcquires, poor, "hold-contract", "Renew of a hold that was released returned <nil>"},
	{outageIsLoss, poor, "short-outage", "cost the lease"},
	{deletionUnnoticed, poor, "deletion", "after its lock was deleted"},
	{deletionUnnoticed, queued, "deletion", "after its lock was deleted"},
	{releaseForgets, poor, "unlock", "TryLock of another failed"},
	{releaseLater, poor, "unlock", "right after Unlock had returned"},
	{releaseInContextOfAcquire, poor, "do", "was not free"},
	{releaseAlwaysFine, poor, "hold-contract", "Release of a hold that was released returned <nil>"},
	{releaseHangs, poor, "renewal-hangs", "Release did not return"},
	{releaseHangs, poor, "close-cut-off", "are still there"},
	{releaseMadeUp, poor, "unlock-through-outage", "was not free"},

	{noOwnerCheck, poor, "owner-exact", "another in its place"},
	{noOwnerCheck, poor, "late-requests", "before the holder's Until"},
	{endOfOwner, poor, "owner-exact", "another in its place"},
	{forgetsOwners, poor, "idempotent", "repeated with the same owner, failed"},
	{tokenPerRequest, rich, "idempotent", "with the same owner, got token"},

	{acquireInTwoSteps, poor, "late-replies", "granted a name that another had been granted"},
	{releaseInTwoSteps, poor, "late-replies", "Release whose reply was late, Renew of a hold failed"},
	{sessionReleaseInTwoSteps, poor, "late-replies", "Release whose reply was late, Renew of a hold failed"},
	{renewInTwoSteps, poor, "late-replies", "Renew, whose reply was late, promised a hold"},
	{expiryInTwoSteps, poor, "dead-asker", "was not free"},
	{neverExpires, poor, "dead-asker", "was not free"},
	{grantInSteps, poor, "dead-asker", "a transaction stays open over several round trips"},
	{leavesNodes, poor, "dead-asker", "the service still has"},
	{grantMadeUp, poor, "dead-asker", "succeeded without a reply"},

	{hidesWhy, queued, "context-at-backend", "does not match context.DeadlineExceeded"},
	{thirdStays, queued, "cancel", "the third of four that waited left"},
	{leavesGrant, queued, "cancel-in-the-middle", "was not free"},
	{promisesPrompt, poor, "prompt", "after its context had ended"},
	{leavesLateGrant, queued, "cancel-in-the-middle", "was not free"},
	{pilesUp, poor, "nothing-piles-up", "have left"},
	{wakesOne, rich, "notify", "was not told of a release"},
	{stopWaits, rich, "notify", "the stop of Notify took"},
	{roundsRenewal, poor, "ttl-kept", "before it was over"},
	{tokenOfClient, rich, "tokens", "after token"},
	{keepsSession, queued, "close", "was not free"},
	{clientClock, poor, "client-clock", "TryLock of a held name returned <nil>"},

	{sinceFromReply, poor, "since", "Acquire waited"},
	{sinceFromRenewal, poor, "since", "Renew waited"},
	{sinceFromWait, queued, "since", "a waiter was told late of its grant"},
	{sinceFromBeat, shared, "since", "a session's renewal was kept back"},
	{boastsTTL, poor, "cut-off", "before the holder's Until"},
	{boastsTTL, poor, "ttl-kept", "before it was over"},
	{noDeadline, poor, "cut-off", "has no deadline"},
	{negativeDrift, poor, "ttl-kept", "with a drift of -200ms, another got the name"},
	{roundsTTL, poor, "ttl-kept", "before it was over"},
	{shortTTL, poor, "max-hold", "before the holder's Until"},
	{shortTTL, poor, "no-renew", "before the holder's Until"},
	{overflowsTTL, poor, "ttl-bounds", "was asked for and granted as"},
	{neverExpires, poor, "dead-holder", "1000 times as long: the TTL is sent in one unit"},
	{neverExpires, poor, "request-very-late", "was not free"},
	{neverExpires, poor, "take-back-overtakes", "was not free"},
	{forgetsVoid, queued, "take-back-overtakes", "was not free"},
	{deathUnnoticed, queued, "dead-holder", "was not free"},

	{tokenUnclaimed, poor, "tokens", "a lease has the token"},
	{tokenLater, rich, "token-order", "got token"},
	{tokenTwice, rich, "tokens", "after token"},
	{tokenTooHigh, rich, "tokens", "the highest is"},
	{tokenWithLock, rich, "tokens", "after token"},
	{raisesNothing, rich, "raise-token", "the next holder has"},
	{raiseSetsBack, rich, "raise-token", "the next holder has"},
	{raiseTwice, rich, "raise-token", "came after token"},
	{raiseEnds, rich, "raise-token", "the next holder has"},
	{raisesAnyway, rich, "raise-token", "instead of ErrLost"},
	{forgetsTokens, rich, "tokens-restart", "after a restart a holder got token"},
	{forgetsTokens, rich, "tokens-failover", "after a fail-over a holder got token"},
	{tokenOfExpired, rich, "tokens-cut-off", "after the holder was cut off a holder got token"},

	{passRemains, rich, "pass", "before the end of a hold that came by Pass"},
	{passSinceReply, rich, "since", "Pass waited"},
	{passesAnyway, rich, "pass", "Pass of a hold that was"},
	{passesSame, rich, "pass", "by Pass"},
	{passesSame, rich, "pass-exclusion", "after one that was not less"},
	{passesForEver, rich, "pass", "passed the lock on all the same"},
	{passesSilently, rich, "pass", "wake was not called"},
	{passLeaves, rich, "pass-reply-lost", "did not get the lock"},

	{foldsCase, poor, "names", "is held although nobody locked it"},
	{cleansPath, poor, "names", "is held although nobody locked it"},
	{cutsNames, poor, "names", "is held although nobody locked it"},
	{dropsPrefixes, poor, "prefixes", "TryLock of a name that nobody had failed"},

	{leavesGhost, poor, "cancel-in-the-middle", "was not free"},
	{leavesGhost, poor, "reply-lost", "was not free"},
	{leavesGhost, poor, "request-late", "was not free"},
	{ghostAfterReset, poor, "connection-reset", "was not free"},
	{timeoutIsHeld, poor, "outage", "which matches ErrHeld"},
	{slownessIsHeld, poor, "outage", "the reply to Acquire did not come"},
	{outageIsHeld, poor, "outage", "which matches ErrHeld"},
	{outageIsHeld, poor, "connection-reset", "nobody held the name"},

	{closesUsers, poor, "close-given", "by the other failed"},
	{closeForgets, poor, "close", "Acquire of a closed Backend returned"},
	{closeTwicePanics, poor, "close", "panic"},
	{closeHangs, poor, "close-cut-off", "does not return"},
	{leaksGoroutine, poor, "close", "are still there"},

	{forgetsLocks, rich, "restart", "after a restart"},
	{forgetsRenewal, rich, "restart", "less than its holder was told"},
	{forgetsLocks, rich, "failover", "after a fail-over"},
	{crashTakesAll, rich, "server-crashes", "after the crash of 1 servers"},
	{wallClock, rich, "clock-jump", "clocks by 1h0m0s"},

	{sharesUnderWriter, poor, "shared-together", "was granted (shared: true)"},
	{sharesUnderWriter, rich, "shared-exclusion", "beside a writer there were 0 other writers"},
	{writesBesideSharers, poor, "shared-together", "was granted (shared: false)"},
	{writesBesideSharers, queued, "shared-exclusion", "beside a reader there were 1 writers"},
	{releasesAllSharers, rich, "shared-together", "it was gone before the release"},
	{notesWithoutWait, poor, "shared-together", "with nobody but sharers before it, failed"},
	{sharersHaveOneTTL, poor, "shared-lives",
		"beside one with 1s that had died, Acquire of another was granted"},
	{sharersHaveLongestTTL, rich, "shared-lives", "have one time at which they end"},
	{sharersHaveLongestTTL, poor, "shared-lives", "have one time at which they end"},
	{sharersByClock, poor, "shared-lives", "has a clock that is 40s ahead, Renew returned"},
	{sharerSinceReply, poor, "since", "with holds that were shared: Acquire waited"},
	{sharerMinHoldIgnored, rich, "min-hold", "with holds that were shared: a lock with a MinHold"},
	{renewalSharesAgain, rich, "hold-contract", "with holds that were shared: Renew"},
	{sharerMinHoldIgnored, rich, "shared-lives", "before its time"},
	{releasesSharersOfName, poor, "shared-lives", "the second Release of a sharer returned <nil>"},
	{renewalSharesAgain, rich, "shared-lives", "Renew of a sharer that was released returned <nil>"},
	{sharersByWallClock, rich, "clock-jump", "clocks by 1h0m0s"},
	{forgetsSharers, rich, "restart", "after a restart"},
	{forgetsSharers, rich, "failover", "after a fail-over"},
	{deadWaitersStay, queued, "shared-late", "behind a dead one"},
	{yieldsToWriters, rich, "shared-operate", "Pass with yield, while a sharer"},
	{noGate, poor, "shared-gate", "and a writer waits, new sharers get in"},
	{noGate, rich, "shared-gate", "and a writer waits, new sharers get in"},
	{noGate, queued, "shared-gate", "and a writer waits, new sharers get in"},
	{gateRefusesSharers, poor, "shared-gate", "repeated with its owner, returned the lock is held"},
	{notesWithoutWait, rich, "shared-gate", "after a writer that does not wait was refused"},
	{notesLast, poor, "shared-gate", "after a writer had asked for the last time"},
	{notesOfOwners, poor, "shared-gate", "when both writers that waited had left"},
	{asksTooLate, poor, "shared-gate", "was refused with AskWithin 2s"},
	{leaveForgets, poor, "shared-gate", "when the only writer that waited had left"},
	{leaveOpens, poor, "shared-gate", "when one of two writers that waited had left"},
	{leaveSilent, rich, "shared-operate", "after a writer that waited had left, wake"},
	{placesStay, queued, "shared-gate", "after a writer that waited had left, a new sharer was still refused"},
	{grantKeepsNote, poor, "shared-gate", "had been granted the lock and had released it"},
	{remainsOfSharers, rich, "shared-gate", "had died, a reader was still kept out"},
	{admitsOneOfRun, queued, "shared-order", "in the order RRRR got in as R"},
	{sharersOvertake, queued, "shared-order", "in the order RRWRRW got in as RRRR"},
	{leavesSharer, queued, "shared-cancel", "was not free"},
	{leavesGrant, queued, "shared-cancel", "was not free"},
	{leavesGhost, poor, "shared-cancel", "was not free"},
	{tokenPerSharer, rich, "shared-tokens", "in turns sharers that hold together have tokens"},
	{staleGeneration, rich, "shared-tokens", "a sharer got token 2, after a writer with 2"},
	{generationOfFounder, rich, "shared-tokens",
		"when the first of them had left sharers that hold together have tokens"},
	{sharerTokenUnclaimed, tokenless, "shared-tokens", "a sharer has the token"},
	{sharesInTwoSteps, poor, "shared-late", "while its reply was late"},
	{leavesGhost, poor, "shared-late", "was not free"},
	{renewalSharesAgain, poor, "shared-late", "after a late Renew of a sharer"},
	{releasesAllSharers, poor, "shared-late", "and another was taken back: Renew"},
	{ownerInBoth, poor, "shared-names", "to hold it in the other way returned <nil>"},
	{keyOfSharers, poor, "shared-names", "which nobody has, returned the lock is held"},
	{inspectsNoSharers, rich, "shared-operate", "Held:false"},
	{inspectsOneSharer, rich, "shared-operate", "Sharers:1 "},
	{breaksOneSharer, rich, "shared-operate", "a writer that waited did not get in"},
	{sharersSilent, rich, "shared-operate", "after the last sharer had left, wake"},

	// What is measured when a check has failed: the cause is named whatever was seen.
	{cutsOwner, poor, "unlock", "and one of 32 does"},
	{cutsOwner, poor, "claims", "and one of 32 does"},
	{refusesOwner, poor, "trylock-held", "(value too long), and one of 32 does"},
	{comparesOwner32, poor, "owner-exact", "the first 32 are compared"},
	{grantUncommitted, poor, "trylock-held", "an Acquire that is granted leaves its transaction open"},
	{refusalUncommitted, poor, "trylock-held", "an Acquire that is refused leaves its transaction open"},
	{releaseUncommitted, poor, "unlock", "a Release leaves its transaction open"},
	{nanosAsMillis, poor, "dead-holder", "1000000 times as long: the TTL is sent in one unit"},
	{secondsAsMillis, poor, "renewal", "the TTL is sent in one unit"},
	{millisAsNanos, poor, "exclusion", "the TTL is sent in one unit"},

	// And what else each of them looks at.
	{claimsNonsense, poor, "claims", "Scope is none"},
	{claimsNonsense, poor, "claims", "Backend is \"the sim\""},
	{inspectsGibberish, rich, "inspect", "the label is"},
	{inspectsSeconds, rich, "inspect", "remain"},
	{inspectsCounter, rich, "inspect", "the holder's token is"},
	{inspectsNoWaiters, queued, "inspect", "one waits, and Inspect says 0"},
	{inspectsThePast, rich, "inspect", "of a name that was unlocked"},
	{opensFirst, poor, "url", "was refused with"},
	{neverExpires, poor, "cut-off", "did not become free"},
	{shortTTL, poor, "dead-holder", "before the dead holder's lease was over"},
	{shortTTL, poor, "ttl-kept", "before it was over"},
	{shortensTTL, poor, "ttl-kept", "granted as"},
	{shortensTTL, poor, "ttl-bounds", "granted as"},
	{renewalShort, poor, "hold-contract", "renewed as"},
	{sinceFuture, poor, "since", "Since in the future"},
	{sinceFuture, poor, "max-hold", "before the holder's Until"},
	{lostTooOften, poor, "deletion", "Lost was called"},
	{lostTooOften, poor, "renewal", "was lost"},
	{releasesAnybody, poor, "owner-exact", "another in its place"},
	{releasesAnybody, poor, "late-requests", "removes the next one's lock"},
	{countsOwners, poor, "idempotent", "Release of the same hold returned <nil>"},
	{tokenMissing, rich, "tokens", "had no token"},
	{asciiNames, poor, "names", "invalid name"},
	{namesByClient, poor, "names", "TryLock of another client returned <nil>"},
	{namesByClient, poor, "prefixes", "TryLock of"},
	{namesByClient, poor, "exclusion", "held the name at once"},
	{vagueOutage, poor, "outage", "does not match ErrUnavailable"},
	{vagueOutage, poor, "connection-reset", "does not match ErrUnavailable"},
	{grantMadeUp, poor, "outage", "Acquire succeeded"},
	{grantMadeUp, poor, "reply-lost", "Lock without a reply, cancelled, returned <nil>"},
	{neverReconnects, poor, "outage", "did not find the way"},
	{neverReconnects, rich, "restart", "lease ended"},
	{neverReconnects, poor, "short-outage", "cost the lease"},
	{releaseMadeUp, poor, "unlock-through-outage", "was not free"},
	{releaseTakesOutageForLoss, poor, "unlock-through-outage", "was not free"},
	{releaseInContextOfAcquire, poor, "context-at-backend",
		"Release failed after the context of Acquire had ended"},
	{releaseInContextOfAcquire, poor, "close", "Close of a Client failed"},
	{leavesNodes, poor, "hold-contract", "the service still has"},
	{leavesNodes, rich, "trylock-held", "the service still has"},
	{closeTwiceFails, poor, "close", "Close of a Backend failed"},
	{ignoresContext, queued, "close-cut-off", "are still there"},
	{leavesGhost, queued, "context-at-backend", "was not free"},
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
	for _, b := range brokenBackends {
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

// Mistakes live in the second state: a client that nothing has happened to makes none.
func TestProveBrokenBackendsAreRejectedInTheSecondState(t *testing.T) {
	lab.NeedProve(t)
	for _, b := range brokenBackends {
		if checkNamed(t, b.check).Once {
			continue
		}
		for _, when := range []string{"refusal", "pass"} {
			// Its holds are no Passers, or the flaw is one of sharers.
			if when == "pass" && (!b.kind.notifies || strings.HasPrefix(b.seen, "with holds that were shared")) {
				continue
			}
			t.Run(b.check+"/"+string(b.flaw)+"/after a "+when, func(t *testing.T) {
				r := proveAfter(t, when, b.flaw, b.kind, checkNamed(t, b.check))
				assert.Equal(t, conformance.Failed, r.Outcome, "%s", r.Reason) // what is seen depends on the moment
			})
		}
	}
}

func TestEveryCheckIsFailedBySomeBrokenBackend(t *testing.T) {
	failed := make(map[string]bool)
	for _, b := range brokenBackends {
		failed[b.check] = true
	}
	for _, c := range conformance.Checks() {
		assert.True(t, failed[c.Name], "nothing shows that check %s can fail", c.Name)
	}
}
