//go:build darwin || freebsd

package fileguard

import "golang.org/x/sys/unix"

// remoteKind returns the name of a file system that is not one of this host
// alone, and "" for all others.
func remoteKind(st *unix.Statfs_t) string {
	if st.Flags&unix.MNT_LOCAL != 0 {
		return ""
	}
	return unix.ByteSliceToString(st.Fstypename[:])
}
