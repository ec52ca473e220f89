package zookeeper_test

import (
	"strconv"
	"testing"

	"github.com/golockers/locker/internal/lab"
)

// A server takes a second to start, and three of them more. Tests that leave
// them as they were share them.

func TestOnOneServer(t *testing.T) {
	t.Parallel()
	const servers = 3 // side by side: the tests wait more than they work
	all := []struct {
		name string
		test func(*testing.T, *lab.ZooKeeper)
	}{
		{"SessionExpiresWhileWaiting", testSessionExpiresWhileWaiting},
		{"SessionThatOnlyTheClientHasGivenUp", testSessionThatOnlyTheClientHasGivenUp},
		{"NodeOfAnotherSessionIsDeletedAndNotUsed", testNodeOfAnotherSessionIsDeletedAndNotUsed},
		{"WaitsThatAreGivenUpLeaveNoWatches", testWaitsThatAreGivenUpLeaveNoWatches},
		{"WaiterWhoseNodeIsRemoved", testWaiterWhoseNodeIsRemoved},
		{"AReleaseWakesOneWaiter", testAReleaseWakesOneWaiter},
		{"DeletedNodeIsTold", testDeletedNodeIsTold},
		{"SessionExpiresWhileHolding", testSessionExpiresWhileHolding},
		{"DeadHolderWithAShortTTL", testDeadHolderWithAShortTTL},
		{"ManyWatchesSurviveAReconnection", testManyWatchesSurviveAReconnection},
		{"AnswersBesideWatchesThatAreSetAgain", testAnswersBesideWatchesThatAreSetAgain},
		{"Credentials", testCredentials},
		{"CredentialsAreReplaced", testCredentialsAreReplaced},
		{"CredentialsSurviveAReconnection", testCredentialsSurviveAReconnection},
		{"PrefixesThatAreRefused", testPrefixesThatAreRefused},
		{"ContainerIsRemovedUnderAnother", testContainerIsRemovedUnderAnother},
		{"PollerWritesNothing", testPollerWritesNothing},
		{"RemovalThatIsRefused", testRemovalThatIsRefused},
		{"HeartbeatThatIsRefused", testHeartbeatThatIsRefused},
		{"HeartbeatThatIsAllowedAgain", testHeartbeatThatIsAllowedAgain},
		{"ListAndBreak", testListAndBreak},
		{"SinceWhenItIsHeld", testSinceWhenItIsHeld},
		{"ListAsksForSeveralAtOnce", testListAsksForSeveralAtOnce},
		{"HoldersKnowBeforeTheNextOneGetsIn", testHoldersKnowBeforeTheNextOneGetsIn},
		{"NodeOfTheSessionIsRemoved", testNodeOfTheSessionIsRemoved},
		{"Check", testCheck},
		{"SilentServersBesideOneThatAnswers", testSilentServersBesideOneThatAnswers},
		{"SilentNetworkHangsNobody", testSilentNetworkHangsNobody},
		{"RaisedTokens", testRaisedTokens},
		{"TokensAreRaisedUnderAWaiter", testTokensAreRaisedUnderAWaiter},
		{"RaiseIsRepeated", testRaiseIsRepeated},
		{"OneNameOnTwoSessions", testOneNameOnTwoSessions},
		{"UndoAfterClose", testUndoAfterClose},
		{"ReleaseThatWasGivenUpIsNoLoss", testReleaseThatWasGivenUpIsNoLoss},
		{"RenewWaitsForARelease", testRenewWaitsForARelease},
		{"TokensRaisedBeforeReaders", testTokensRaisedBeforeReaders},
		{"NoMoreShareANameThanThereMayBe", testNoMoreShareANameThanThereMayBe},
	}
	for n := range servers {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			z := lab.StartZooKeeper(t)
			for i := n; i < len(all); i += servers {
				t.Run(all[i].name, func(t *testing.T) { all[i].test(t, z) })
			}
		})
	}
}

func TestProveOnThreeServers(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	e := lab.StartZooKeeperEnsemble(t, 3)
	for _, one := range []struct {
		name string
		test func(*testing.T, *lab.ZooKeeperEnsemble)
	}{
		{"LeaderKilledWithHolderAndWaiters", testLeaderKilledWithHolderAndWaiters},
		{"LeaderPausedWithHolderAndWaiters", testLeaderPausedWithHolderAndWaiters},
		{"LeaderStoppedPastTheTimeout", testLeaderStoppedPastTheTimeout},
		{"CheckOfAnEnsemble", testCheckOfAnEnsemble},
		{"AllServersKilledAndRestarted", testAllServersKilledAndRestarted},
		{"TokenIsTheCzxid", testTokenIsTheCzxid},
		{"LostQuorumIsToldWithinTheDeadline", testLostQuorumIsToldWithinTheDeadline},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Cleanup(func() { e.Restart(t) }) // after all that the test cleans up
			one.test(t, e)
		})
	}
}
