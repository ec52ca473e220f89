//go:build darwin || freebsd

package localfile

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// kindOf needs no list of what is remote: these systems say themselves what is local. A program in user space may say
// so, too, of what it serves, and so may a disk that several hosts share and the directory of a virtual machine's host.
func kindOf(st *unix.Statfs_t) string {
	kind := unix.ByteSliceToString(st.Fstypename[:])
	shared := strings.Contains(kind, "fuse") ||
		slices.Contains([]string{"acfs", "snfs", "vxfs", "vmhgfs", "prl_fs", "AppleVirtIOFS", "virtiofs", "vboxvfs",
			"vboxsf", "p9fs"}, kind)
	if st.Flags&unix.MNT_LOCAL != 0 && !shared {
		return ""
	}
	return kind
}
