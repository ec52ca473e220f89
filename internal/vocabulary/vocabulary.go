// Package vocabulary has the words for what a lock service promises, shared by the table of `locker
// backends`, `locker run --require` and the rows of `locker compare`.
package vocabulary

import "github.com/golockers/locker/driver"

// Term is a promise that can be required.
type Term struct {
	Word  string
	Means string            // in one line, for help and errors
	Want  driver.Guarantees // the least that a service with this promise declares
}

// Terms returns all terms, in the order in which help lists them. A service makes the promises of
// several terms if it makes each.
func Terms() []Term {
	return []Term{
		{"host", "the processes of one host exclude each other",
			driver.Guarantees{Scope: driver.ScopeHost}},
		{"network", "processes on different hosts exclude each other",
			driver.Guarantees{Scope: driver.ScopeNetwork}},
		{"exclusion", "no two holders have a lock at the same time",
			driver.Guarantees{Scope: driver.ScopeHost, Exclusion: driver.ExclusionServer}},
		{"fencing", "each lease has a token, greater than all before it",
			driver.Guarantees{Fencing: driver.FencingWhileKept}},
		{"order", "the first to wait is the first to get the lock",
			driver.Guarantees{Order: driver.OrderFIFO}},
		{"shared", "many holders can share a lock",
			driver.Guarantees{Shared: driver.SharingTokenless}},
		{"freed", "a lock does not stay locked when its holder is gone",
			driver.Guarantees{DeadHolder: driver.RecoveryWatched}},
		{"served", "locks are granted while a server is down",
			driver.Guarantees{ServerCrashes: 1}},
		{"restart", "a held lock survives a restart of the servers with their data",
			driver.Guarantees{SurvivesRestart: true}},
		{"fail-over", "a held lock survives a fail-over",
			driver.Guarantees{SurvivesFailover: true}},
		{"clock-jump", "a held lock survives a jump of a server's clock",
			driver.Guarantees{SurvivesClockJump: true}},
		{"server-pause", "a held lock survives a server's pause that is longer than its TTL",
			driver.Guarantees{SurvivesPause: true}},
	}
}

// Means returns the meaning of a word, or "" if it is not in the vocabulary.
func Means(word string) string {
	for _, t := range Terms() {
		if t.Word == word {
			return t.Means
		}
	}
	return ""
}
