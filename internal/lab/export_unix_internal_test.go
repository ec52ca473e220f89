//go:build unix

package lab

// RoleEnv is the environment variable that makes a process a child.
const RoleEnv = roleEnv

// Suspended reports whether a process stands still.
func Suspended(pid int) bool { return suspended(pid) }

// StartGuard starts a guard as systems without Linux's help do. The first function stops it; the second
// makes it believe that this process has died.
func StartGuard(pid int) (stop, die func(), err error) {
	g, err := startGuard(pid)
	if err != nil {
		return nil, nil, err
	}
	return g.stop, func() {
		_ = g.pipe.Close()
		_ = g.cmd.Wait()
	}, nil
}
