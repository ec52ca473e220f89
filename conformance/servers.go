package conformance

import (
	"fmt"

	"github.com/golockers/locker"
)

// byHistories is the run of a check that only sees to it that a claim has its hook: histories
// prove the promise.
func byHistories(*trial) {}

func serverChecks() []check {
	return []check{
		{
			Name:    "restart",
			Promise: "A held lock is still held when all servers were killed and started again (SurvivesRestart).",
			unasked: func(s subject) string {
				if !s.SurvivesRestart {
					return "SurvivesRestart is false"
				}
				return ""
			},
			missing: needsRestart,
			run:     byHistories,
		},
		{
			Name:    "failover",
			Promise: "A held lock is still held when another server has taken over (SurvivesFailover).",
			unasked: func(s subject) string {
				if !s.SurvivesFailover {
					return "SurvivesFailover is false"
				}
				return ""
			},
			missing: needsFailover,
			run:     byHistories,
		},
		{
			Name:    "server-crashes",
			Promise: "With as many servers down as ServerCrashes says, held locks stay held and free ones can be had.",
			unasked: func(s subject) string {
				if s.ServerCrashes == 0 {
					return "ServerCrashes is 0"
				}
				return ""
			},
			missing: func(s subject) string {
				if s.Crash == nil {
					return "Crash"
				}
				return ""
			},
			run: byHistories,
		},
		{
			Name:    "clock-jump",
			Promise: "A step of the servers' wall clocks gives a held lock to nobody else (SurvivesClockJump).",
			unasked: func(s subject) string {
				switch {
				case !s.SurvivesClockJump:
					return "SurvivesClockJump is false"
				case s.Exclusion >= locker.ExclusionKernel && s.JumpClock == nil:
					return fmt.Sprintf("exclusion rests on %v, where no clock is involved", s.Exclusion)
				}
				return ""
			},
			missing: func(s subject) string {
				if s.JumpClock == nil {
					return "JumpClock"
				}
				return ""
			},
			run: byHistories,
		},
	}
}

func needsRestart(s subject) string {
	if s.Restart == nil {
		return "Restart"
	}
	return ""
}

func needsFailover(s subject) string {
	if s.Failover == nil {
		return "Failover"
	}
	return ""
}
