package conformance

import (
	"fmt"

	"github.com/golockers/locker"
)

// serverChecks see to it that each claim has its hook, or a reason why there is none. Histories prove the promises:
// they use every hook that there is.
func serverChecks() []check {
	missing := func(hook string, has func(h Harness) bool) func(subject) string {
		return func(s subject) string {
			if has(s.Harness) {
				return ""
			}
			return hook
		}
	}
	claims := func(is func(g locker.Guarantees) bool, why string) func(subject) string {
		return func(s subject) string {
			if is(s.Guarantees) {
				return ""
			}
			return why
		}
	}
	checks := []check{
		{
			Name:    "deletion",
			Promise: "A holder whose lock was deleted behind its back is told (R12).",
			unasked: func(s subject) string {
				if s.Scope <= locker.ScopeProcess && s.Delete == nil {
					return "nobody can get at the memory of one process from outside"
				}
				return ""
			},
			missing: missing("Delete", func(h Harness) bool { return h.Delete != nil }),
		},
		{
			Name: "restart",
			Promise: "A held lock is still held when all servers were killed and started again (SurvivesRestart), " +
				"and tokens go on rising.",
			unasked: claims(func(g locker.Guarantees) bool {
				return g.SurvivesRestart || g.Fencing >= locker.FencingUnlessRewind && g.Scope >= locker.ScopeNetwork
			}, "SurvivesRestart is false, and a restart may lose the data that tokens need"),
			missing: missing("Restart", func(h Harness) bool { return h.Restart != nil }),
		},
		{
			Name: "failover",
			Promise: "A held lock is still held when another server has taken over (SurvivesFailover), " +
				"and tokens go on rising.",
			unasked: claims(func(g locker.Guarantees) bool { return g.SurvivesFailover }, "SurvivesFailover is false"),
			missing: missing("Failover", func(h Harness) bool { return h.Failover != nil }),
		},
		{
			Name:    "server-crashes",
			Promise: "With as many servers down as ServerCrashes says, held locks stay held and free ones can be had.",
			unasked: claims(func(g locker.Guarantees) bool { return g.ServerCrashes > 0 }, "ServerCrashes is 0"),
			missing: missing("Crash", func(h Harness) bool { return h.Crash != nil }),
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
			missing: missing("JumpClock", func(h Harness) bool { return h.JumpClock != nil }),
		},
		{
			Name:    "client-clock",
			Promise: "No client's clock decides when a lock is over.",
			unasked: claims(func(g locker.Guarantees) bool { return g.Scope >= locker.ScopeNetwork },
				"all clients have one clock"),
			missing: missing("OffClock", func(h Harness) bool { return h.OffClock != nil }),
			rare:    true,
		},
	}
	for i := range checks {
		checks[i].run = func(*trial) {}
	}
	return checks
}
