package check

import (
	"fmt"

	"github.com/golockers/locker/compare/internal/history"
)

// declared says whether g promises that rule is kept under fault, and in which
// words.
func declared(g *history.Guarantees, rule string, fault *history.Fault, servers int) (bool, string) {
	excludes := g.Exclusion != "none" && g.Exclusion != "" && g.Scope != "none" && g.Scope != "process"
	switch rule {
	case Exclusion, Told:
		if !excludes {
			return false, "no exclusion between processes"
		}
		if ok, what := covers(g, fault); what != "" {
			return ok, what
		}
		return true, "exclusion rests on: " + g.Exclusion
	case Stale:
		return false, "nobody can promise this without a guard at the resource"
	case Guarded, Tokens:
		switch g.Fencing {
		case "unless data is set back":
			// A replica that may lag sets it back.
			set := fault != nil && (fault.Class == history.DataLost ||
				fault.Class == history.Failover && !g.SurvivesFailover)
			return !set, "tokens rise unless data is set back"
		case "while data is kept":
			ok, what := covers(g, fault)
			return ok || what == "", "tokens rise while data is kept"
		}
		return false, "no tokens"
	case Dead:
		return g.DeadHolder != "none" && g.DeadHolder != "",
			fmt.Sprintf("free %s, at most %g s later", g.DeadHolder, g.DeadHolderSlackMS/1000)
	case Left:
		return g.DeadHolder != "none" && g.DeadHolder != "", "what is left of a failed attempt is gone after a TTL"
	case Served:
		return servers <= g.ServerCrashes, fmt.Sprintf("%d may be down", g.ServerCrashes)
	case FalseLoss:
		return excludes && fault == nil, "a renewed lease lasts"
	case Order:
		return g.Order == "fifo", "order: " + g.Order
	case Hangs:
		return true, "a call returns when its context ends"
	}
	return false, ""
}

// covers says whether g promises to outlast fault; what is "" if no promise is
// needed for it.
func covers(g *history.Guarantees, fault *history.Fault) (ok bool, what string) {
	if fault == nil {
		return true, ""
	}
	say := func(ok bool, of string) (bool, string) {
		if ok {
			return true, "outlasts " + of
		}
		return false, "does not outlast " + of
	}
	switch fault.Class {
	case history.Restart:
		return say(g.SurvivesRestart, "a restart")
	case history.Failover:
		return say(g.SurvivesFailover, "a fail-over")
	case history.Clock:
		return say(g.SurvivesClockJump, "a step of a clock")
	case history.Pause:
		return say(g.SurvivesPause, "a server's pause")
	case history.DataLost:
		return false, "nobody outlasts the loss of data"
	}
	return true, ""
}
