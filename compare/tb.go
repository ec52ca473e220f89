package compare

import "github.com/golockers/locker/internal/host"

// stage is what servers, proxies and children of one service belong to: the lab.TB of a program. What
// fails on it ends the step under way with an error.
type stage struct{ host.Host }

// Failed is false always: logs of servers stay in their files.
func (s *stage) Failed() bool { return false }
