package conformance_test

// flaw is one thing that a broken backend or its service does wrong.
type flaw string

const (
	none flaw = ""

	// What is claimed and told.
	claimsEverything       flaw = "claims everything and rests on nothing"
	claimsByMood           flaw = "claims depend on who is connected"
	claimsAsk              flaw = "Guarantees asks the service"
	claimsQueue            flaw = "HasQueue although there is no queue"
	claimsNonsense         flaw = "claims that are out of range"
	inspectsNothing        flaw = "Inspect never sees a holder"
	inspectsHolderAsWaiter flaw = "Inspect counts the holder as a waiter"
	inspectEnds            flaw = "Inspect ends what it looks at"
	inspectsGibberish      flaw = "Inspect mangles the label"
	inspectsSeconds        flaw = "Inspect mistakes the unit of time"
	inspectsCounter        flaw = "Inspect returns another token"
	inspectsNoWaiters      flaw = "Inspect counts no waiters and says 0"
	inspectsThePast        flaw = "Inspect sees those who have left"
	opensAnother           flaw = "the URL leads to another service"
	opensFirst             flaw = "the URL is used before it is checked"

	// Who gets in.
	grantsAlways      flaw = "grants what is held"
	remainsTooLong    flaw = "the time that a refusal tells is in another unit"
	vagueRefusal      flaw = "a refusal that is not ErrHeld"
	holdBesideRefusal flaw = "a Hold beside a refusal"
	tryWaits          flaw = "waits although Wait is not set"
	reentrant         flaw = "reentrant per session"
	labelIsOwner      flaw = "who has the holder's label has the lock"
	oneAtATime        flaw = "Acquire keeps a mutex while it waits"

	// Waiting.
	hidesWhy            flaw = "a wait that ends says held, and not why it ended"
	thirdStays          flaw = "the third in the queue keeps its place when it leaves"
	leavesGrant         flaw = "a wait that ends when its lock is granted leaves the lock"
	promisesPrompt      flaw = "says that it is prompt, and ignores its context"
	pilesUp             flaw = "each wait starts what ends with the client"
	wakesOne            flaw = "of those who listen for a name one is told"
	stopWaits           flaw = "the stop of Notify waits for the service"
	waitsOnDeleted      flaw = "who waits for a lock that is deleted waits for that one, and gets it"
	leavesLateGrant     flaw = "a wait that ends in the moment of its grant leaves the lock"
	wakeLost            flaw = "wake-ups are lost"
	subscribesLate      flaw = "Notify returns before it listens"
	subscribesToNothing flaw = "Notify listens to nothing"
	missedNotTold       flaw = "what was missed during a disconnection is not made up for"
	forgetsWaiters      flaw = "the queue forgets its waiters"
	lastInFirstOut      flaw = "the latest waiter is served first"
	placesStay          flaw = "a waiter that leaves keeps its place"
	deadWaitersStay     flaw = "a dead waiter is granted the lock for ever"
	hidesHeld           flaw = "a wait that ends does not say that the lock was held"
	silentQueue         flaw = "a wait in a queue does not tell that others are before it"
	hidesCancel         flaw = "a wait that ends does not say why"
	waitsOn             flaw = "a wait in the queue does not end with its context"
	ignoresContext      flaw = "Acquire ignores its context"
	sendsWhenCancelled  flaw = "Acquire asks under a context that is over"
	holdDiesWithContext flaw = "the hold ends with the context of Acquire"

	// Holding.
	renewsNothing             flaw = "Renew does not prolong"
	renewalStale              flaw = "Renew returns the validity of the grant"
	renewalHangs              flaw = "Renew ignores its context"
	renewalMadeUp             flaw = "Renew does not wait for the answer"
	renewsAlone               flaw = "one of several renewals at the same time fails"
	roundsRenewal             flaw = "renewals are rounded down to whole seconds"
	renewalShort              flaw = "Renew grants less than was asked for"
	renewAcquires             flaw = "Renew puts back a key that is gone"
	outageIsLoss              flaw = "Renew takes an outage for a loss"
	deletionUnnoticed         flaw = "Renew does not see that its key is gone"
	releaseForgets            flaw = "Release removes nothing"
	releaseLater              flaw = "Release returns before it has happened"
	releaseInContextOfAcquire flaw = "Release uses the context of Acquire"
	releaseAlwaysFine         flaw = "Release does not look whether there was something"
	releaseHangs              flaw = "Release ignores its context"
	releaseMadeUp             flaw = "Release takes an outage for success"
	releaseTakesOutageForLoss flaw = "Release takes an outage for a loss"
	lostTooOften              flaw = "Lost is called for a hold that is there"

	// MinHold.
	minHoldIgnored flaw = "MinHold is not looked at"
	minHoldShort   flaw = "half of MinHold is kept"
	minHoldRenewed flaw = "a renewal makes MinHold shorter"
	minHoldEndless flaw = "MinHold is kept in another unit"
	minHoldSticks  flaw = "a take-back keeps the lock for its MinHold"
	minHoldOfClock flaw = "MinHold ends by the clock of the client that asked for it"
	minHoldJumps   flaw = "MinHold ends by a wall clock, which can be set back"
	minHoldPassed  flaw = "Pass forgets MinHold"

	// Operators.
	listsContains    flaw = "List tells of names that contain the prefix"
	listsLike        flaw = "List takes the prefix for a pattern"
	listsNothing     flaw = "List tells of nothing"
	listsFree        flaw = "List tells of names that are free"
	listsOn          flaw = "List does not stop at an error of found"
	listsAtOnce      flaw = "List calls found for several names at a time"
	breaksNothing    flaw = "Break removes nothing"
	breaksBlindly    flaw = "Break does not tell who held it"
	breaksQueue      flaw = "Break removes more than the holder"
	breaksAndRefuses flaw = "Break removes the holder, and says that it cannot"

	// Owners.
	noOwnerCheck    flaw = "release and renewal without an owner check"
	releasesAnybody flaw = "release without an owner check"
	countsOwners    flaw = "a repeated request has to be released twice"
	endOfOwner      flaw = "the second half of an owner is compared"
	forgetsOwners   flaw = "a repeated request is refused"
	tokenPerRequest flaw = "a repeated request gets a new token"

	cutsOwner       flaw = "an owner is cut at 32 characters when it is stored"
	refusesOwner    flaw = "an owner that is longer than its column is an error"
	comparesOwner32 flaw = "an owner is cut at 32 characters whenever it is used"

	// Transactions that stay open: others wait for the rows that they have locked.
	grantUncommitted   flaw = "the transaction of a grant stays open"
	refusalUncommitted flaw = "the transaction of a refusal stays open"
	grantInSteps       flaw = "the transaction of an acquire is several requests"
	releaseUncommitted flaw = "the transaction of a release stays open"

	// Steps that a late reply comes between.
	acquireInTwoSteps        flaw = "looks who has the lock, and takes it in the next request"
	expiryInTwoSteps         flaw = "takes the lock, and gives it its TTL in the next request"
	releaseInTwoSteps        flaw = "looks who has the lock, and removes it in the next request"
	sessionReleaseInTwoSteps flaw = "the same, with locks that a session keeps"
	renewInTwoSteps          flaw = "looks who has the lock, and renews it in the next request"

	// Time.
	sinceFromReply   flaw = "a grant counts from the reply"
	sinceFromWait    flaw = "a grant to a waiter counts from the reply"
	sinceFromBeat    flaw = "a session's renewal counts from the reply"
	sinceFromRenewal flaw = "a renewal counts from the reply"
	boastsTTL        flaw = "claims twice the TTL that the service keeps"
	negativeDrift    flaw = "a drift that is added to the TTL"
	sinceFuture      flaw = "validity counts from the future"
	shortensTTL      flaw = "grants half of the TTL that was asked for"
	noDeadline       flaw = "claims that the hold has no deadline"
	roundsTTL        flaw = "TTLs are rounded down to whole seconds"
	shortTTL         flaw = "the lock ends before its TTL"
	overflowsTTL     flaw = "milliseconds in 32 bits"
	neverExpires     flaw = "milliseconds are taken for seconds"
	nanosAsMillis    flaw = "nanoseconds are taken for milliseconds"
	secondsAsMillis  flaw = "seconds are taken for milliseconds"
	millisAsNanos    flaw = "milliseconds are taken for nanoseconds"
	forgetsVoid      flaw = "a take-back that finds nothing is the end of it, and sessions keep locks"
	deathUnnoticed   flaw = "the death of a holder is not noticed"

	// Tokens.
	tokenOfClient  flaw = "each client counts tokens of its own"
	tokenUnclaimed flaw = "tokens that nothing is promised of"
	tokenMissing   flaw = "no token although tokens are claimed"
	tokenTooHigh   flaw = "tokens above MaxToken"
	tokenLater     flaw = "a token is drawn in a request of its own after the grant"
	tokenTwice     flaw = "a token is given out twice"
	tokenWithLock  flaw = "the counter ends with the lock"
	forgetsTokens  flaw = "the counter is lost in a restart"
	raisesNothing  flaw = "RaiseToken does nothing"
	raisesAnyway   flaw = "RaiseToken does not ask whose lock it is"
	tokenOfExpired flaw = "the counter ends when a lock expires"

	raiseSetsBack flaw = "RaiseToken sets the counter, also to less"
	raiseTwice    flaw = "what was raised is given out again and again"
	raiseEnds     flaw = "what was raised ends with its holder's key"

	// Passing on.
	passRemains    flaw = "Pass leaves the time that remains to the next holder"
	passSinceReply flaw = "what Pass grants counts from the reply"
	passesAnyway   flaw = "Pass does not ask whose the lock is"
	passesSame     flaw = "Pass gives the hold to the next caller"
	passesForEver  flaw = "Pass does not yield"
	passesSilently flaw = "Pass yields and tells nobody"
	passLeaves     flaw = "Pass does not say what it may have left"

	// Names.
	foldsCase     flaw = "names without case"
	cleansPath    flaw = "names cleaned like paths"
	cutsNames     flaw = "names cut at 255 bytes"
	dropsPrefixes flaw = "names without what is before a colon"
	asciiNames    flaw = "names of letters only"
	namesByClient flaw = "each client has names of its own"

	// What an unknown outcome leaves.
	leavesGhost     flaw = "a cancelled request leaves its key"
	leavesNodes     flaw = "Release leaves something of the lock"
	ghostAfterReset flaw = "a broken connection leaves its key"
	timeoutIsHeld   flaw = "a time-out is reported as held"
	slownessIsHeld  flaw = "a request's own time-out is reported as held"
	outageIsHeld    flaw = "an outage is reported as held"
	vagueOutage     flaw = "an outage is an error of the driver"
	grantMadeUp     flaw = "Acquire that got no answer says yes"
	neverReconnects flaw = "a connection that broke is never made again"

	// Ends.
	keepsSession     flaw = "a session outlives Close"
	closesUsers      flaw = "Close closes what its user has given"
	closeForgets     flaw = "Close closes nothing"
	closeTwicePanics flaw = "the second Close panics"
	closeTwiceFails  flaw = "the second Close fails"
	closeHangs       flaw = "Close waits for a silent service"
	leaksGoroutine   flaw = "a goroutine for each client is left"

	// Servers.
	forgetsRenewal flaw = "what a renewal has set is lost in a restart"
	forgetsLocks   flaw = "locks are lost in a restart"
	crashTakesAll  flaw = "one server down is all down"
	clientClock    flaw = "locks end by the clock of who asks"
	wallClock      flaw = "locks end by the wall clock"
)
