// Package conformance is the suite of tests that every [locker.Backend] has to pass,
// those of this module and those of third parties. A backend that passes may be used
// wherever a [locker.Locker] is needed, and keeps its [locker.Guarantees], as far as
// tests can tell.
//
// # Using it
//
// A test in the backend's package says how to reach the service, and runs the suite:
//
//	func TestConformance(t *testing.T) {
//		server := startServer(t)
//		conformance.Run(t, conformance.Harness{
//			New: func(t conformance.T) locker.Backend { return connect(t, server) },
//			// … and the hooks that the claims need
//		})
//	}
//
// The example of this package is a complete backend with its harness, and the example
// called Network is one across a network. For each claim that you add to Guarantees,
// the suite asks for a proof, and for the hook that the proof needs. To run one
// check, use
//
//	go test -run 'TestConformance/dead-holder' .
//
// and programs that are not tests run checks with [Check].
//
// # Claims
//
// The suite reads the backend's Guarantees and its optional abilities
// ([locker.Operator], [locker.Notifier]). Every claim must hold; a claim never skips
// a check. An ability that is not claimed must be absent or refused with
// [errors.ErrUnsupported]: no tokens if Fencing is none, no TTL outside the bounds,
// no Inspect without an Operator. If the proof of a claim needs a hook that the
// [Harness] does not have, the suite fails, unless Harness.Unproven gives the reason,
// which the test then prints.
//
// # What hooks are needed
//
//	claim                             hook
//	Scope wider than one process      Delete: an operator, or an eviction
//	Scope is the network              Cut: a connection that can be broken
//	DeadHolder at once                Victim: a program that is killed
//	DeadHolder after the TTL          Victim, or Cut, which stands in for it
//	Fencing unless data is set back   Restart
//	SurvivesRestart                   Restart
//	SurvivesFailover                  Failover
//	ServerCrashes                     Crash
//	SurvivesClockJump                 JumpClock, where servers have a part in exclusion
//	no client's clock decides         OffClock; without it, told as unproven
//	Close of what is the user's       Pair, where a backend is made of a driver's client
//	SurvivesPause                     none: package compare tries it
//
// Cut matters most. Between its client and the service there has to be a [Proxy], or
// a dialer, that can hold, drop and reset data in both directions. Held data must
// arrive later even if its sender has closed the connection: this makes a ghost, a
// request that its sender has given up and that is carried out nevertheless.
//
//	Cut: func(t conformance.T) (locker.Backend, conformance.Fault) {
//		addr, fault := conformance.Proxy(t, server.Addr)
//		return connect(t, addr), fault
//	},
//
// # What authors ask
//
//   - DeadHolderSlack is how much later than the end of the TTL a dead holder's lock
//     can be free: the interval at which the service looks for expired locks, and, if
//     a session keeps the lock, the time by which the session outlasts the requested
//     TTL.
//   - Release of the hold's own row that has expired, but that nobody has taken or
//     removed, may return nil or ErrLost. It must remove the row. If the row is
//     another's now, Release returns ErrLost and removes nothing.
//   - If a request was certainly never sent (no connection, a context that was over
//     before), the Grant needs no Hold beside the error. If in doubt, set it.
//   - No clock of a client may decide when a lock is over. If a client writes
//     "expires at 12:00:30" by its own clock, another client whose clock is ahead
//     takes the lock too early; and if the first clock is ahead, a dead holder's lock
//     lasts too long. Send durations, and compare inside the service, at the moment
//     of the statement: in SQL with clock_timestamp(), since now() is the beginning
//     of the transaction.
//   - Tokens come from the service, in the same step as the grant: a client's counter
//     or clock does not rise above those of others.
//   - A renewal changes an existing row and never inserts one: if the row is gone,
//     another may have held the lock meanwhile.
//   - A request may arrive after its take-back. If a TTL ends its lock, that is all
//     right. If a session would keep the lock alive, Undo has to make the request
//     void, or retire the session.
//
// # States
//
// Mistakes live in the second state. So a check runs in each state at once: with holds
// that were granted to the first request of a fresh client for a fresh name; with holds
// that a client has got which was refused, or has waited, while another held the name; with
// such that are shared, if that is claimed; and, if holds are Passers, with those that were
// passed on. A failure says in which.
//
// # The contract
//
// Beside each promise of the contract stand the check that fails if it is not kept, and the
// broken backend that this check rejects, by its name in the suite's own tests. Where there
// is no check, the reason stands there instead.
//
//	Locker.Lock
//	  it waits until it holds the name            drain                  forgetsWaiters
//	  of many callers one holds the name          exclusion              grantsAlways
//	  it returns when ctx ends                    context-at-backend     waitsOn
//	  nothing of a cancelled request is left      cancel-in-the-middle   leavesGhost
//	  nor if the cancel comes at the very grant   cancel-in-the-middle   leavesLateGrant
//	  callers of one Client in order              fifo-in-client         vagueRefusal
//	  a wait for one name delays no other         independent-names      oneAtATime
//	  an outage that ends fails no caller         outage                 neverReconnects
//	  nothing is reentrant                        no-reentrancy          reentrant
//	Locker.TryLock
//	  ErrHeld if another holds the name           trylock-held           vagueRefusal
//	  ErrUnavailable in an outage, never ErrHeld  outage                 outageIsHeld
//	Locker.Guarantees
//	  those of the Backend                        claims                 claimsNonsense
//	Backend.Acquire
//	  refuses what another holds                  trylock-held           grantsAlways
//	  a refusal has no Hold                       trylock-held           holdBesideRefusal
//	  without Wait it does not wait               trylock-held           tryWaits
//	  in its queue it waits until ctx is done     context-at-backend     ignoresContext
//	  then it leaves the queue                    cancel                 thirdStays
//	  its error matches ErrHeld                   deadline               hidesHeld
//	  and ctx.Err()                               context-at-backend     hidesWhy
//	  what it has made of ctx it ends             nothing-piles-up       pilesUp
//	  what it granted does not end with ctx       context-at-backend     holdDiesWithContext
//	  nothing is sent when ctx is over            context-at-backend     sendsWhenCancelled
//	  ErrUnavailable if it cannot ask             outage                 vagueOutage
//	  ErrUnavailable if its connection breaks     connection-reset       vagueOutage
//	  no answer is not a grant                    outage                 grantMadeUp
//	  outcome unknown: a Hold beside the error    reply-lost             leavesGhost
//	  also if the connection broke                connection-reset       ghostAfterReset
//	  also if the request comes later             request-late           leavesGhost
//	  much later: one TTL at most                 request-very-late      neverExpires
//	  a request repeated is granted again         idempotent             forgetsOwners
//	  with the same token                         idempotent             tokenPerRequest
//	  to look and to take are one step            late-replies           acquireInTwoSteps
//	  the lock and its TTL are one step           dead-asker             expiryInTwoSteps
//	  no transaction is left open                 trylock-held           grantUncommitted
//	  nor by a refusal                            trylock-held           refusalUncommitted
//	  nor by a client that dies in the middle     dead-asker             grantInSteps
//	  who waits does not wait for what is gone    handover               waitsOnDeleted
//	  a time-out of its own is no refusal         outage                 slownessIsHeld
//	HeldError.Remaining
//	  no longer than the lock lasts               trylock-held           remainsTooLong
//	  nor than what is in the way                 shared-gate            remainsOfSharers
//	HeldError.AskWithin
//	  before the note ends                        shared-gate            asksTooLate
//	  which it does within a second               shared-gate            notesLast
//	  each caller has one                         shared-gate            notesOfOwners
//	  that its grant removes                      shared-gate            grantKeepsNote
//	HeldError.Leave
//	  removes the note                            shared-gate            leaveForgets
//	  and no other                                shared-gate            leaveOpens
//	  and tells who waits                         shared-operate         leaveSilent
//	Backend.Guarantees
//	  always the same                             claims                 claimsByMood
//	  no I/O                                      claims                 claimsAsk
//	Backend.Close
//	  ends goroutines                             close                  leaksGoroutine
//	  ends sessions                               close                  keepsSession
//	  afterwards Acquire returns ErrClosed        close                  closeForgets
//	  it may be called twice                      close                  closeTwicePanics
//	  it ends nothing that its user has given it  close-given            closesUsers
//	  it returns although the service is silent   close-cut-off          closeHangs
//	Request.Name
//	  any UTF-8                                   names                  asciiNames
//	  case matters                                names                  foldsCase
//	  no name reaches another's place             names                  cleansPath
//	  512 bytes                                   names                  cutsNames
//	  and 128 bytes of prefix in front            prefixes               dropsPrefixes
//	  the same for every client                   names                  namesByClient
//	Request.Owner
//	  40 digits are stored                        unlock                 cutsOwner
//	  40 digits are compared                      owner-exact            comparesOwner32
//	  from the first to the last                  owner-exact            endOfOwner
//	  it marks the attempt, not the client        no-reentrancy          reentrant
//	Request.Label
//	  kept as it is                               inspect                inspectsGibberish
//	  it does not decide who holds the lock       exclusion              labelIsOwner
//	Request.TTL
//	  the lock lasts for it                       ttl-kept               shortTTL
//	  and not for longer                          dead-holder            neverExpires
//	  it is never rounded down                    ttl-kept               roundsTTL
//	  nor by a renewal                            ttl-kept               roundsRenewal
//	Request.MinHold
//	  kept without the client                     min-hold               minHoldIgnored
//	  for all of its time                         min-hold               minHoldShort
//	  a renewal makes it no shorter               min-hold               minHoldRenewed
//	  nor for who gets the lock by Pass           min-hold               minHoldPassed
//	  and not for much longer                     min-hold               minHoldEndless
//	  by no client's clock                        min-hold               minHoldOfClock
//	  nor by one that is set back                 clock-jump             minHoldJumps
//	  a take-back removes the lock at once        min-hold               minHoldSticks
//	Request.Wait
//	  with it a release wakes                     wake-up                wakeLost
//	Request.Shared
//	  many hold a name together                   shared-together        releasesAllSharers
//	  and no writer beside them                   shared-together        writesBesideSharers
//	  also under contention                       shared-exclusion       writesBesideSharers
//	  no sharer beside a writer                   shared-exclusion       sharesUnderWriter
//	  to look and to join are one step            shared-late            sharesInTwoSteps
//	  each has a TTL of its own                   shared-lives           sharersHaveOneTTL
//	  which no other renews                       shared-lives           sharersHaveLongestTTL
//	  by no client's clock                        shared-lives           sharersByClock
//	  and counts from before the request          since                  sharerSinceReply
//	  and a MinHold of its own                    shared-lives           sharerMinHoldIgnored
//	  a release ends one of them                  shared-lives           releasesSharersOfName
//	  that is gone for good                       shared-lives           renewalSharesAgain
//	  also if its renewal comes late              shared-late            renewalSharesAgain
//	  an unknown outcome is taken back            shared-late            leavesGhost
//	  and no other with it                        shared-late            releasesAllSharers
//	  nothing of a cancel at the grant is left    shared-cancel          leavesSharer
//	  nor of a writer that waits for sharers      shared-cancel          leavesGrant
//	  a writer that waits keeps new ones out      shared-gate            noGate
//	  but nobody who holds, or asks again         shared-gate            gateRefusesSharers
//	  one that does not wait keeps nobody out     shared-gate            notesWithoutWait
//	  nor one that has left the queue             shared-gate            placesStay
//	  a run of sharers gets in together           shared-order           admitsOneOfRun
//	  after the writers before it, if in order    shared-order           sharersOvertake
//	  no name is the key of another's sharers     shared-names           keyOfSharers
//	  no owner holds in both ways                 shared-names           ownerInBoth
//	  one token for those that hold together      shared-tokens          tokenPerSharer
//	  whoever of them has left                    shared-tokens          generationOfFounder
//	  greater than each before                    shared-tokens          staleGeneration
//	  Inspect and Break see all                   shared-operate         inspectsOneSharer
//	  Break removes all                           shared-operate         breaksOneSharer
//	  who waits is told when the last leaves      shared-operate         sharersSilent
//	Request.Lost
//	  called when the hold is gone                deletion               deletionUnnoticed
//	  not called while it is there                deletion               lostTooOften
//	Request.Queued
//	  called when others are before it            deadline               silentQueue
//	Grant.Hold
//	  nil beside a refusal, set beside a doubt    trylock-held           holdBesideRefusal
//	Grant.Validity
//	  no longer than the service keeps the lock   cut-off                boastsTTL
//	Grant.Token
//	  rises from holder to holder                 tokens                 tokenTwice
//	  for all clients                             tokens                 tokenOfClient
//	  drawn in the step that grants               token-order            tokenLater
//	  also when the lock was gone                 tokens                 tokenWithLock
//	  at most MaxToken                            tokens                 tokenTooHigh
//	  0 if Fencing is none                        tokens                 tokenUnclaimed
//	Validity.Since
//	  before a grant's request is sent            since                  sinceFromReply
//	  before a waiter's is granted                since                  sinceFromWait
//	  before a renewal's                          since                  sinceFromRenewal
//	  before a session's renewal                  since                  sinceFromBeat
//	  not in the future                           max-hold               sinceFuture
//	Validity.TTL
//	  what the service granted                    cut-off                boastsTTL
//	  not less than was asked for                 ttl-bounds             shortensTTL
//	  0 only if there is no deadline              cut-off                noDeadline
//	Validity.Drift
//	  not negative                                ttl-kept               negativeDrift
//	Grant.Session
//	  what nobody renews goes on                  none                   each has its own sessions
//	Hold.Renew
//	  the hold lasts for its TTL from now on      renewal                renewsNothing
//	  returns the new Validity                    no-renew               renewalStale
//	  not without an answer                       cut-off                renewalMadeUp
//	  several at a time are all answered          renewal                renewsAlone
//	  ErrLost if the hold is gone                 deletion               deletionUnnoticed
//	  an outage is no loss                        short-outage           outageIsLoss
//	  a lock that is gone is not taken again      deletion               renewAcquires
//	  to look and to renew are one step           late-replies           renewInTwoSteps
//	  it ends with its ctx                        renewal-hangs          renewalHangs
//	  a late one harms nobody                     late-requests          noOwnerCheck
//	Hold.Release
//	  nil: the hold is gone                       unlock                 releaseForgets
//	  at that moment, and for all                 unlock                 releaseLater
//	  committed                                   unlock                 releaseUncommitted
//	  ErrLost: it was not there                   hold-contract          releaseAlwaysFine
//	  an outage is not a success                  unlock-through-outage  releaseMadeUp
//	  nor a loss                                  unlock-through-outage  releaseTakesOutageForLoss
//	  it removes only its own                     owner-exact            releasesAnybody
//	  also if it comes late                       late-requests          releasesAnybody
//	  all of its own                              hold-contract          leavesNodes
//	  to look and to remove are one step          late-replies           releaseInTwoSteps
//	  it ends with its own ctx                    renewal-hangs          releaseHangs
//	  and not with that of Acquire                do                     releaseInContextOfAcquire
//	Guarantees.Queue
//	  true only if Acquire waits                  context-at-backend     claimsQueue
//	  who waits gets the lock, and once           drain                  forgetsWaiters
//	  a dead waiter is passed over                dead-waiter            deadWaitersStay
//	  also a sharer                               shared-late            deadWaitersStay
//	Notifier.Notify
//	  a release is told                           notify                 wakeLost
//	  from the moment at which it returns         notify                 subscribesLate
//	  to all who listen                           notify                 wakesOne
//	  what was missed is made up for              notify                 missedNotTold
//	  stop does not wait for the service          notify                 stopWaits
//	Passer.Pass
//	  the one ends, the other begins              pass                   passesSame
//	  with a token of its own                     pass-exclusion         passesSame
//	  with a whole TTL                            pass                   passRemains
//	  that counts from before the request         since                  passSinceReply
//	  ErrLost if the hold was gone                pass                   passesAnyway
//	  with yield another client is next           pass                   passesForEver
//	  also one of its sharers                     shared-operate         yieldsToWriters
//	  who is told of it                           pass                   passesSilently
//	  outcome unknown: a Hold beside the error    pass-reply-lost        passLeaves
//	Prompt.Prompt
//	  within 100 ms after the end of ctx          prompt                 promisesPrompt
//	Hold.Undo
//	  removes what the attempt has stored         cancel-in-the-middle   leavesGrant
//	  and makes void what is in flight            take-back-overtakes    forgetsVoid
//	Guarantees.MaxMinHold
//	  what is within it is kept                   min-hold               minHoldShort
//	TokenRaiser.RaiseToken
//	  every later token is greater                raise-token            raisesNothing
//	  each of them                                raise-token            raiseTwice
//	  also when the hold has ended                raise-token            raiseEnds
//	  a lower one changes nothing                 raise-token            raiseSetsBack
//	  ErrLost if the hold is gone                 raise-token            raisesAnyway
//	Operator.Inspect
//	  the state at this moment                    inspect                inspectsNothing
//	  and no longer                               inspect                inspectsThePast
//	  it changes nothing                          inspect                inspectEnds
//	  how long the lock lasts                     inspect                inspectsSeconds
//	  the holder's label                          inspect                inspectsGibberish
//	  and its token                               inspect                inspectsCounter
//	  how many wait in the queue                  inspect                inspectsNoWaiters
//	  without the holder                          inspect                inspectsHolderAsWaiter
//	  nor who has left                            inspect                placesStay
//	Operator.List
//	  each name that is held                      list                   listsNothing
//	  and begins with the prefix                  list                   listsContains
//	  which is no pattern                         list                   listsLike
//	  no name that is free                        list                   listsFree
//	Operator.Break
//	  removes the holder                          break                  breaksNothing
//	  and that one only                           break                  breaksNext
//	  nothing else is removed                     break                  breaksQueue
//	  if it is refused, nothing changes           break                  breaksAndRefuses
//	Checker.Check
//	  finds what breaks a guarantee               none                   each has its own settings
//	Aser.As
//	  sets what it knows                          none                   each has its own values
//	Guarantees.Backend
//	  a word                                      claims                 claimsNonsense
//	  by URL as by hand                           url                    opensAnother
//	Guarantees.Scope
//	  clients that are so far apart exclude       exclusion              namesByClient
//	Guarantees.Exclusion
//	  rests on no client's clock                  client-clock           clientClock
//	Guarantees.Fencing
//	  tokens rise over a restart                  tokens-restart         forgetsTokens
//	  over a fail-over                            tokens-failover        forgetsTokens
//	  over the loss of a holder                   tokens-cut-off         tokenOfExpired
//	  a lease has one if claimed                  tokens                 tokenMissing
//	Guarantees.Order
//	  FIFO over clients, if claimed               fifo-across-clients    lastInFirstOut
//	Guarantees.Shared
//	  0 tokens of sharers if it says so           shared-tokens          sharerTokenUnclaimed
//	Guarantees.DeadHolder
//	  the lock is free when it says               dead-holder            deathUnnoticed
//	  and not before its lease is over            dead-holder            shortTTL
//	Guarantees.DeadHolderSlack
//	  no later than that                          dead-holder            neverExpires
//	Guarantees.ServerCrashes
//	  so many may be down                         server-crashes         crashTakesAll
//	Guarantees.SurvivesRestart
//	  a lock is kept                              restart                forgetsLocks
//	  also a shared one                           restart                forgetsSharers
//	  for as long as its last renewal says        restart                forgetsRenewal
//	Guarantees.SurvivesFailover
//	  a lock is kept                              failover               forgetsLocks
//	  also a shared one                           failover               forgetsSharers
//	Guarantees.SurvivesClockJump
//	  nobody else gets the lock                   clock-jump             wallClock
//	  nor one that is shared                      clock-jump             sharersByWallClock
//	Guarantees.SurvivesPause
//	  a server may stand still                    none                   package compare tries it
//	Guarantees.MinTTL
//	  works                                       ttl-bounds             shortensTTL
//	Guarantees.MaxTTL
//	  works                                       ttl-bounds             overflowsTTL
//	Guarantees.RestsOn
//	  says something                              claims                 claimsEverything
//
// # Time
//
// Checks wait for conditions and compare recorded moments ("told at" before "next
// holder in at"), with bounds that allow for a busy machine. The unit is Harness.TTL.
// With a TTL of one second, all checks together take some 25 seconds for a service
// without a network, and 75 for one with a network; more where locks end with a session,
// which outlasts the TTL. A check that fails while the
// machine stalled for a quarter of a TTL or more runs again with twice the TTL, at most
// twice. What fails each time has failed.
//
// # What it cannot prove
//
// A suite sees what happens in a minute. It does not see rare interleavings inside a
// service, a disk that lies, a network that reorders, nor whether RestsOn is true.
// And no lock prevents the late write of a holder that is stopped between its last
// look and its write; only tokens that the resource checks do.
//
// Of the contract, five sentences have no check. That Since has its monotonic reading: the
// suite's own tests run in virtual time, which has none. That credentials which are refused are
// not told as an outage: each service has its own. That Pass does not wait for others, and that
// List tells of a name that is waited for and not held: both last for a moment only. That
// MaxSharers hold a name at most: so many requests take long, and each backend has a test.
//
// The suite's own tests prove that it can fail, by the broken backends of the table.
package conformance
