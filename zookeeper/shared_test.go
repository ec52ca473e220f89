package zookeeper_test

import (
	"strconv"
	"testing"

	"github.com/golockers/locker/internal/lab"
)

// A server takes a second to start, and an ensemble longer, so tests share those that
// they leave as they were.

func TestOnOneServer(t *testing.T) {
	t.Parallel()
	const servers = 3 // side by side: the tests wait more than they work
	all := []onOneServer{
		{"SessionThatOnlyTheClientHasGivenUp", testSessionThatOnlyTheClientHasGivenUp},
		{"NodeOfAnotherSessionIsDeletedAndNotUsed", testNodeOfAnotherSessionIsDeletedAndNotUsed},
		{"WaitsThatAreGivenUpLeaveNoWatches", testWaitsThatAreGivenUpLeaveNoWatches},
		{"WaiterWhoseNodeIsRemoved", testWaiterWhoseNodeIsRemoved},
		{"AReleaseWakesOneWaiter", testAReleaseWakesOneWaiter},
		{"ManyWatchesSurviveAReconnection", testManyWatchesSurviveAReconnection},
		{"AnswersBesideWatchesThatAreSetAgain", testAnswersBesideWatchesThatAreSetAgain},
		{"Credentials", testCredentials},
		{"CredentialsAreReplaced", testCredentialsAreReplaced},
		{"PrefixesThatAreRefused", testPrefixesThatAreRefused},
		{"ContainerIsRemovedUnderAnother", testContainerIsRemovedUnderAnother},
		{"PollerWritesNothing", testPollerWritesNothing},
		{"RemovalThatIsRefused", testRemovalThatIsRefused},
		{"HeartbeatThatIsRefused", testHeartbeatThatIsRefused},
		{"ListAndBreak", testListAndBreak},
		{"SinceWhenItIsHeld", testSinceWhenItIsHeld},
		{"ListAsksForSeveralAtOnce", testListAsksForSeveralAtOnce},
		{"HoldersKnowBeforeTheNextOneGetsIn", testHoldersKnowBeforeTheNextOneGetsIn},
		{"NodeOfTheSessionIsRemoved", testNodeOfTheSessionIsRemoved},
		{"BesideOneWithShortSessions", testBesideOneWithShortSessions},
		{"SilentServersBesideOneThatAnswers", testSilentServersBesideOneThatAnswers},
		{"SilentNetworkHangsNobody", testSilentNetworkHangsNobody},
		{"TokensAreRaisedUnderAWaiter", testTokensAreRaisedUnderAWaiter},
		{"RaiseIsRepeated", testRaiseIsRepeated},
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

type onOneServer struct {
	name string
	test func(*testing.T, *lab.ZooKeeper)
}

func testBesideOneWithShortSessions(t *testing.T, z *lab.ZooKeeper) {
	short := lab.StartZooKeeper(t, lab.WithConfig("maxSessionTimeout", "3000"))
	t.Run("Check", func(t *testing.T) { testCheck(t, z, short) })
	t.Run("TTLThatTheServersDoNotGrant", func(t *testing.T) { testTTLThatTheServersDoNotGrant(t, short) })
}

// These count the writes and the sessions of a server, so that nobody else may use it.
func TestAloneOnAServer(t *testing.T) {
	t.Parallel()
	z := lab.StartZooKeeper(t)
	for _, one := range []onOneServer{
		{"HandingOnCostsNoMoreWrites", testHandingOnCostsNoMoreWrites},
		{"HeartbeatIsOneWriteForAllLocks", testHeartbeatIsOneWriteForAllLocks},
		{"SessionsFillAndEnd", testSessionsFillAndEnd},
	} {
		t.Run(one.name, func(t *testing.T) { one.test(t, z) })
	}
}

// This server allows few connections, and soon removes containers that are empty.
func TestOnALimitedServer(t *testing.T) {
	t.Parallel()
	z := lab.StartZooKeeper(t, lab.WithConfig("maxClientCnxns", strconv.Itoa(connections)),
		lab.WithJavaFlag("-Dznode.container.checkIntervalMs=100"))
	for _, one := range []onOneServer{
		{"ParentIsRemovedByTheService", testParentIsRemovedByTheService},
		{"LimitOfConnectionsPerHost", testLimitOfConnectionsPerHost},
		{"ServerRefusesAnotherConnection", testServerRefusesAnotherConnection},
	} {
		t.Run(one.name, func(t *testing.T) { one.test(t, z) })
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
		{"HolderAndWaitersSurvive", testHolderAndWaitersSurvive},
		{"LeaderStoppedPastTheTimeout", testLeaderStoppedPastTheTimeout},
		{"CheckOfAnEnsemble", testCheckOfAnEnsemble},
		{"LostQuorumIsToldWithinTheDeadline", testLostQuorumIsToldWithinTheDeadline},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Cleanup(func() { e.Restart(t) }) // after all that the test cleans up
			one.test(t, e)
		})
	}
}
