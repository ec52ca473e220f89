//go:build darwin || freebsd

package localfile

import "golang.org/x/sys/unix"

// kindOf needs no list: these systems say themselves what is local.
func kindOf(st *unix.Statfs_t) string {
	if st.Flags&unix.MNT_LOCAL != 0 {
		return ""
	}
	return unix.ByteSliceToString(st.Fstypename[:])
}
