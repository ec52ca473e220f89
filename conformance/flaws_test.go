package conformance_test

// flaw is one thing that a broken backend or its service does wrong; nil: nothing.
type flaw = *mistake

type mistake struct {
	what   string
	kinds  []kind // of backends that have it, in tests
	byHand bool   // no history shows it, or only what a check has
}

var flaws []flaw

// wrong is a flaw that histories have to show.
func wrong(what string, kinds ...kind) flaw {
	flaws = append(flaws, &mistake{what: what, kinds: kinds})
	return flaws[len(flaws)-1]
}

// byHand is one that a check is there for.
func byHand(what string, kinds ...kind) flaw {
	f := wrong(what, kinds...)
	f.byHand = true
	return f
}

var (
	none flaw

	// What is claimed and told.
	claimsEverything       = byHand("claims everything and rests on nothing", poor)
	claimsByMood           = byHand("claims depend on who is connected", rich)
	claimsAsk              = byHand("Guarantees asks the service", poor)
	claimsQueue            = wrong("HasQueue although there is no queue", poor)
	claimsNonsense         = byHand("claims that are out of range", poor)
	inspectsNothing        = wrong("Inspect never sees a holder", rich)
	inspectsHolderAsWaiter = wrong("Inspect counts the holder as a waiter", queued)
	inspectEnds            = wrong("Inspect ends what it looks at", rich)
	inspectsGibberish      = wrong("Inspect mangles the label", rich)
	inspectsLastWaiter     = wrong("Inspect counts the time of those that wait", queued)
	inspectsSeconds        = wrong("Inspect mistakes the unit of time", rich)
	inspectsCounter        = wrong("Inspect returns another token", rich)
	inspectsNoWaiters      = wrong("Inspect counts no waiters and says 0", queued)
	inspectsThePast        = wrong("Inspect sees those who have left", rich)
	inspectsUnnamed        = wrong("Inspect tells no label of sharers", rich)
	inspectsTimeless       = wrong("Inspect tells no time", rich)
	inspectsTurn           = wrong("Inspect tells of a holder that is nobody while a turn is kept", rich)
	inspectsWritersOnly    = wrong("Inspect leaves sharers out of the labels of those that wait", queued)
	opensAnother           = byHand("the URL leads to another service", poor)
	opensFirst             = byHand("the URL is used before it is checked", poor)

	// Who gets in.
	grantsAlways      = wrong("grants what is held", poor)
	remainsTooLong    = wrong("the time that a refusal tells is in another unit", poor)
	vagueRefusal      = wrong("a refusal that is not ErrHeld", poor)
	holdBesideRefusal = wrong("a Hold beside a refusal", poor)
	refusesByError    = wrong("a refusal is an error", poor)

	grantsNothing       = wrong("neither a Hold nor a refusal", poor)
	refusesWhatItGrants = wrong("a refusal together with a Hold, for one that waits", poor)
	tryWaits            = wrong("waits although Wait is not set", poor)
	reentrant           = wrong("reentrant per session", poor)
	labelIsOwner        = wrong("who has the holder's label has the lock", poor)
	oneAtATime          = wrong("Acquire keeps a mutex while it waits", queued)

	// Many of them.
	sharersUnbounded     = byHand("any number of sharers is granted", poor, rich, queued)
	boundIsHeld          = byHand("one sharer too many is told that the name is held", poor)
	countsThoseWhoLeft   = byHand("sharers that have left count as long as others are there", poor)
	breaksOnePage        = byHand("Break removes the first thousand of more sharers", rich)
	tellsOnePageLost     = byHand("Lost is called of the first thousand of more sharers", queued)
	listsOnePage         = byHand("List tells of a thousand names", rich)
	listsBordersTwice    = byHand("List tells the first name of its second page twice", rich)
	countsWaitersInAByte = byHand("waiters are counted in a byte", queued)
	tellsEveryPlace      = byHand("the labels of all that wait are told", queued)
	holdsInAByte         = byHand("the hold after 256 others of a client is taken for the first", poor)
	waitsTakeRequests    = byHand("256 calls that wait are all that a client can make", queued)
	hurryTakesRequests   = byHand("256 calls that were given up are all that a client can make", poor)
	renewsNoMore         = byHand("a client that has had 256 holds renews none", rich)
	endsFewNames         = byHand("of more than a thousand names none ends by itself", poor)
	inspectsFirstSharer  = byHand("a name that 64 share lasts as long as its first sharer", rich)

	// Waiting.
	thirdStays          = wrong("the third in the queue keeps its place when it leaves", queued)
	leavesGrant         = wrong("a wait that ends when its lock is granted leaves the lock", queued)
	promisesPrompt      = wrong("says that it is prompt, and ignores its context", poor)
	promptLater         = byHand("says that it is prompt, and looks at its context after 150 ms", poor)
	pilesUp             = byHand("each wait starts what ends with the client", poor)
	wakesOne            = wrong("of those who listen for a name one is told", rich)
	stopWaits           = wrong("the stop of Notify waits for the service", rich)
	stopsNothing        = wrong("Notify returns no stop, and no error", rich)
	notifyFails         = wrong("Notify fails, although it listens", rich)
	waitsOnDeleted      = wrong("who waits for a lock that is deleted waits for that one, and gets it", queued)
	leavesLateGrant     = wrong("a wait that ends in the moment of its grant leaves the lock", queued)
	waitedBriefly       = wrong("that somebody waits is forgotten when the first holder's time is over", rich)
	wakeLost            = wrong("wake-ups are lost", rich)
	subscribesLate      = wrong("Notify returns before it listens", rich)
	subscribesToNothing = wrong("Notify listens to nothing", rich)
	missedNotTold       = wrong("what was missed during a disconnection is not made up for", rich)
	forgetsWaiters      = wrong("the queue forgets its waiters", queued)
	lastInFirstOut      = wrong("the latest waiter is served first", queued)
	placesStay          = wrong("a waiter that leaves keeps its place", queued)
	deadWaitersStay     = wrong("a dead waiter is granted the lock for ever", queued)
	hidesHeld           = wrong("a wait that ends does not say that the lock was held", queued)
	silentQueue         = wrong("a wait in a queue does not tell that others are before it", queued)
	hidesByCause        = wrong("the error of a call tells the cause with which its context ended", poor, queued)
	hidesCancel         = wrong("a wait that ends does not say why", queued)
	requestsUnbounded   = wrong("no time limit but the context's ends a request", poor)
	waitsOn             = wrong("a wait in the queue does not end with its context", queued)
	ignoresContext      = wrong("Acquire ignores its context", queued, poor)
	sendsWhenCancelled  = wrong("Acquire asks under a context that is over", poor)
	holdDiesWithContext = wrong("the hold ends with the context of Acquire", poor)

	// Holding.
	renewsNothing             = wrong("Renew does not prolong", poor)
	renewsOnce                = wrong("a renewal later than one TTL after the grant does nothing", poor)
	renewalStale              = wrong("Renew returns the validity of the grant", poor)
	renewalHangs              = wrong("Renew ignores its context", poor)
	renewalMadeUp             = wrong("Renew does not wait for the answer", poor)
	renewsAlone               = wrong("one of several renewals at the same time fails", poor)
	roundsRenewal             = wrong("renewals are rounded down to whole seconds", poor)
	renewalShort              = wrong("Renew grants less than was asked for", poor)
	renewalOfMinHold          = wrong("Renew claims the MinHold for which the service keeps the lock", rich)
	renewAcquires             = wrong("Renew puts back a key that is gone", poor)
	outageIsLoss              = wrong("Renew takes an outage for a loss", poor)
	deletionUnnoticed         = wrong("Renew does not see that its key is gone", poor, queued)
	releaseForgets            = wrong("Release removes nothing", poor)
	releaseLater              = wrong("Release returns before it has happened", poor)
	releaseInContextOfAcquire = wrong("Release uses the context of Acquire", poor)
	releaseAlwaysFine         = wrong("Release does not look whether there was something", poor)
	releaseHangs              = wrong("Release ignores its context", poor)
	releaseMadeUp             = wrong("Release takes an outage for success", poor)
	releaseTakesOutageForLoss = wrong("Release takes an outage for a loss", poor)
	lostTooOften              = wrong("Lost is called for a hold that is there", poor)

	// MinHold.
	minHoldIgnored = wrong("MinHold is not looked at", rich)
	minHoldShort   = wrong("half of MinHold is kept", rich)
	minHoldRenewed = wrong("a renewal makes MinHold shorter", rich)
	minHoldEndless = wrong("MinHold is kept in another unit", rich)
	minHoldOfFirst = wrong("MinHold of a sharer that joins others is not looked at", rich)
	undoesTooEarly = wrong("Undo in an outage does not wait for MinHold", rich)
	keepsExpired   = wrong("a take-back later than the TTL keeps the lock for its MinHold", rich)
	minHoldSticks  = wrong("a take-back keeps the lock for its MinHold", rich)
	minHoldOfClock = wrong("MinHold ends by the clock of the client that asked for it", rich)
	minHoldJumps   = wrong("MinHold ends by a wall clock, which can be set back", rich)
	keepFrees      = wrong("Release with a keep removes the lock at once", rich)
	keepForgets    = wrong("Release with a keep changes nothing, so that the lock lasts for its TTL", rich)
	keepsHalf      = wrong("Release keeps the lock for half of its keep", rich)
	keepsLong      = wrong("the keep of Release is sent in another unit", rich)
	keptIsRenewed  = wrong("what Release keeps can still be renewed", rich)
	keptStays      = wrong("what Release keeps cannot be removed any more", rich)
	minHoldPassed  = wrong("Pass forgets MinHold", rich)

	// Operators.
	listsContains    = wrong("List tells of names that contain the prefix", rich)
	listsLike        = wrong("List takes the prefix for a pattern", rich)
	listsNothing     = wrong("List tells of nothing", rich)
	listsFree        = wrong("List tells of names that are free", rich)
	breaksNothing    = wrong("Break removes nothing", rich)
	breaksNext       = wrong("Break removes whoever holds by then", rich)
	breaksUnseen     = wrong("Break of a State of nobody removes the holder", rich)
	breaksQueue      = wrong("Break removes more than the holder", rich)
	breaksFifty      = wrong("Break removes fifty of more sharers", rich)
	breaksFounders   = wrong("Break removes no sharers of whom the first has left", rich)
	breaksSilently   = wrong("Break tells nobody who listens", rich)
	tellsFirstLost   = wrong("Lost is called of the first of several sharers", queued)
	raisedUnwatched  = wrong("Lost is not called of a hold that has raised tokens", queued)
	breaksAndRefuses = wrong("Break removes the holder, and says that it cannot", rich)

	// Owners.
	noOwnerCheck    = wrong("release and renewal without an owner check", poor)
	releasesAnybody = wrong("release without an owner check", poor)
	countsOwners    = wrong("a repeated request has to be released twice", poor)
	endOfOwner      = wrong("the second half of an owner is compared", poor)
	forgetsOwners   = wrong("a repeated request is refused", poor)
	tokenPerRequest = wrong("a repeated request gets a new token", rich)

	cutsOwner       = wrong("an owner is cut at 32 characters when it is stored", poor)
	refusesOwner    = byHand("an owner that is longer than its column is an error", poor)
	comparesOwner32 = wrong("an owner is cut at 32 characters whenever it is used", poor)

	// Steps that a late reply comes between.
	acquireInTwoSteps        = wrong("looks who has the lock, and takes it in the next request", poor)
	expiryInTwoSteps         = wrong("takes the lock, and gives it its TTL in the next request", poor)
	releaseInTwoSteps        = wrong("looks who has the lock, and removes it in the next request", poor)
	sessionReleaseInTwoSteps = wrong("the same, with locks that a session keeps", poor)
	renewInTwoSteps          = wrong("looks who has the lock, and renews it in the next request", poor)

	// Time.
	sinceFromReply   = wrong("a grant counts from the reply", poor)
	sinceFromWait    = wrong("a grant to a waiter counts from the reply", queued)
	sinceFromRenewal = wrong("a renewal counts from the reply", poor, queued)
	boastsTTL        = wrong("claims twice the TTL that the service keeps", poor)
	negativeDrift    = wrong("a drift that is added to the TTL", poor)
	sinceFuture      = wrong("validity counts from the future", poor)
	refusesLeast     = wrong("a TTL of MinTTL is refused", poor)
	shortensTTL      = wrong("grants half of the TTL that was asked for", poor)
	noDeadline       = wrong("claims that the hold has no deadline", poor)
	roundsTTL        = wrong("TTLs are rounded down to whole seconds", poor)
	shortTTL         = wrong("the lock ends before its TTL", poor)
	overflowsTTL     = wrong("milliseconds in 32 bits", poor)
	neverExpires     = wrong("milliseconds are taken for seconds", poor)
	nanosAsMillis    = wrong("nanoseconds are taken for milliseconds", poor)
	secondsAsMillis  = wrong("seconds are taken for milliseconds", poor)
	millisAsNanos    = wrong("milliseconds are taken for nanoseconds", poor)
	forgetsVoid      = wrong("a take-back that finds nothing is the end of it, and sessions keep locks", queued)
	deathUnnoticed   = byHand("the death of a holder is not noticed", queued)

	// Dead holders that have to be watched.
	claimsUnwatched = wrong("claims that a dead holder needs no observer", watched)
	observesEarly   = wrong("a holder was observed from before its Load was sent", aged)
	forgetsSights   = wrong("what an observer has seen is forgotten", watched)

	// Tokens.
	tokenOfClient  = wrong("each client counts tokens of its own", rich)
	tokenUnclaimed = wrong("tokens that nothing is promised of", poor)
	tokenMissing   = wrong("no token although tokens are claimed", rich)
	tokenTooHigh   = wrong("tokens above MaxToken", rich)
	tokenLater     = wrong("a token is drawn in a request of its own after the grant", rich)
	tokenOfPlace   = wrong("a token is drawn with a place in the queue", queued, tokenless)
	tokenTwice     = wrong("a token is given out twice", rich)
	tokenWithLock  = wrong("the counter ends with the lock", rich)
	forgetsTokens  = wrong("the counter is lost in a restart", rich)
	raisesNothing  = wrong("RaiseToken does nothing", rich)
	raisesAnyway   = wrong("RaiseToken does not ask whose lock it is", rich)
	tokenOfExpired = wrong("the counter ends when a lock expires", rich)

	raiseSetsBack = wrong("RaiseToken sets the counter, also to less", rich)
	raiseTwice    = wrong("what was raised is given out again and again", rich)
	raiseEnds     = wrong("what was raised ends with its holder's key", rich)

	// Passing on.
	passRemains    = wrong("Pass leaves the time that remains to the next holder", rich)
	passSinceReply = wrong("what Pass grants counts from the reply", rich)
	passesAnyway   = wrong("Pass does not ask whose the lock is", rich)
	passesSame     = wrong("Pass gives the hold to the next caller", rich)
	passesForEver  = wrong("Pass does not yield", rich)
	passesToOthers = wrong("Pass yields although it was not asked to", rich)
	passesSilently = wrong("Pass yields and tells nobody", rich)
	passLeaves     = wrong("Pass does not say what it may have left", rich)
	passHushes     = wrong("nobody is told when a lock is released that was passed on", rich)
	passHangs      = wrong("Pass ignores its context", rich)

	// Names.
	foldsCase     = wrong("names without case", poor)
	cleansPath    = wrong("names cleaned like paths", poor)
	cutsNames     = wrong("names cut at 255 bytes", poor)
	dropsPrefixes = wrong("names without what is before a colon", poor)
	asciiNames    = wrong("names of letters only", poor)
	namesByClient = wrong("each client has names of its own", poor)

	// What an unknown outcome leaves.
	leavesGhost     = wrong("a cancelled request leaves its key", queued, poor)
	leavesNodes     = wrong("Release leaves something of the lock", poor, rich)
	endsWhenAsked   = wrong("a dead lock is removed when somebody asks for it, and not before", poor)
	ghostAfterReset = wrong("a broken connection leaves its key", poor)
	timeoutIsHeld   = wrong("a time-out is reported as held", poor)
	outageIsHeld    = wrong("an outage is reported as held", poor)
	vagueOutage     = wrong("an outage is an error of the driver", poor)
	grantMadeUp     = wrong("Acquire that got no answer says yes", poor)
	neverReconnects = wrong("a connection that broke is never made again", poor, rich)

	// Ends.
	keepsSession     = wrong("a session outlives Close", queued)
	closesUsers      = byHand("Close closes what its user has given", poor)
	closeIsHeld      = wrong("a wait that Close ends says held", queued)
	closeIsOutage    = wrong("a wait that Close ends says that the service cannot be asked", queued)
	closeForgets     = wrong("Close closes nothing", poor)
	closeTwicePanics = wrong("the second Close panics", poor)
	closeTwiceFails  = wrong("the second Close fails", poor)
	closeHangs       = wrong("Close waits for a silent service", poor)
	leaksGoroutine   = wrong("a goroutine for each client is left", poor)

	// Servers.
	forgetsRenewal = wrong("what a renewal has set is lost in a restart", rich)
	forgetsLocks   = wrong("locks are lost in a restart", rich)
	hangTakesAll   = wrong("a server that stands still is waited for", rich)
	crashTakesAll  = wrong("one server down is all down", rich)
	clientClock    = wrong("locks end by the clock of who asks", poor)
	wallClock      = wrong("locks end by the wall clock", rich)

	// Sharing.
	sharesUnderWriter     = wrong("a sharer gets in beside a writer", poor, rich)
	writesBesideSharers   = wrong("a writer gets in beside sharers", poor, queued)
	sharesInTwoSteps      = wrong("looks whether a sharer may come, and lets it in with the next request", poor)
	sharersHaveOneTTL     = wrong("all sharers of a name end with the latest request of one", poor)
	sharersHaveLongestTTL = wrong("all sharers of a name end with the last of them", rich, poor)
	sharersByClock        = wrong("sharers end by the clock of who asks", poor)
	sharersByWallClock    = wrong("sharers end by the wall clock", rich)
	forgetsSharers        = wrong("sharers are lost in a restart", rich)
	sharerSinceReply      = wrong("a sharer's grant counts from the reply", poor)
	sharerMinHoldIgnored  = wrong("MinHold of a sharer is not looked at", rich)
	releasesSharersOfName = wrong("a release removes one of the sharers, whoever asks", poor)
	releasesAllSharers    = wrong("a release removes all sharers", rich, poor)
	leavesSharer          = wrong("a sharer whose wait ends when it is granted stays", queued)
	renewalSharesAgain    = wrong("a renewal of a sharer puts its entry back", rich, poor)
	ownerInBoth           = wrong("who finds its owner in place is granted what it asks for, of either kind", poor)
	keyOfSharers          = wrong("the key of a name's sharers is another name's", poor)
	sharersSilent         = wrong("nobody is told that a sharer has left", rich)

	// Who waits for sharers, and behind them.
	noGate             = wrong("readers join past a waiting writer for ever", poor, rich, queued)
	gateRefusesSharers = wrong("who holds and asks again is refused because a writer waits", poor)
	notesUnsaid        = wrong("a writer that waits leaves no note, and its refusal says nothing of one", poor)
	notesWithoutWait   = wrong("a writer that does not wait leaves a note", poor, rich)
	notesLast          = wrong("the note of a writer that waits does not end by itself", poor)
	notesOfOwners      = wrong("each request of a waiting writer leaves a note of its own", poor)
	asksTooLate        = wrong("the engine is told to ask again when the note is over", poor)
	noteOfGeneration   = wrong("a note that was renewed keeps out sharers of its first generation", poor)
	undoLeavesNote     = wrong("Undo leaves the note of a writer that waits", poor)
	leaveForgets       = wrong("Leave removes nothing", poor)
	leaveOpens         = wrong("Leave removes the notes of all writers", poor)
	leaveSilent        = wrong("Leave tells nobody", rich)
	leaveFails         = wrong("Leave removes the note, and says that it failed", poor)
	grantKeepsNote     = wrong("the note of a writer stays when it is granted the lock", poor)
	remainsOfSharers   = wrong("who is kept out by a note is told how long the sharers last", rich)
	yieldsToWriters    = wrong("Pass yields to no sharer that waits", rich)
	admitsOneOfRun     = wrong("of a run of sharers in the queue one gets in", queued)
	sharersOvertake    = wrong("sharers in the queue get in before the writer that waits in front of them", queued)

	// Tokens and operators of sharers.
	tokenPerSharer       = wrong("each sharer draws a token of its own", rich)
	staleGeneration      = wrong("sharers have the token of the writer before them", rich)
	generationOfFounder  = wrong("when the sharer has left that drew the token, the next draws another", rich)
	sharerTokenUnclaimed = wrong("sharers have tokens that are not claimed", tokenless)
	inspectsNoSharers    = wrong("Inspect does not see sharers", rich)
	inspectsOneSharer    = wrong("Inspect sees one of several sharers", rich)
	breaksOneSharer      = wrong("Break removes one of several sharers", rich)
)
