//go:build linux

package localfile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

// The numbers are those of stat(1). None of these can be mounted here.
func TestKindsThatSeveralHostsShareAreRefused(t *testing.T) {
	for number, kind := range map[uint32]string{
		0xAAD7AAEA: "PanFS", 0xBEEFDEAD: "StorNext", 0x61636673: "ACFS", 0x013111A8: "IBRIX", 0xBACBACBC: "vmhgfs",
		0x7C7C6673: "prl_fs", 0xA501FCF5: "VxFS", 0x6969: "NFS", 0xFE534D42: "SMB", 0x65735546: "FUSE",
		unix.EXT4_SUPER_MAGIC: "", unix.XFS_SUPER_MAGIC: "", unix.BTRFS_SUPER_MAGIC: "", unix.TMPFS_MAGIC: "",
		unix.OVERLAYFS_SUPER_MAGIC: "",
	} {
		st := unix.Statfs_t{}
		switch to := any(&st.Type).(type) { // of another size on each architecture, and signed
		case *int64:
			*to = int64(number)
		case *uint32:
			*to = number
		case *int32:
			*to = int32(number)
		}
		assert.Equal(t, kind, kindOf(&st), "%#x", number)
	}
}
