package localfile_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/internal/localfile"
)

func TestFileSystemsOfMoreThanOneHostAreRefused(t *testing.T) {
	// From the file systems' own sources, not from the table under test.
	for magic, refused := range map[uint32]bool{
		0x6969: true, 0xff534d42: true, 0xfe534d42: true, 0x517b: true, 0x65735546: true,
		0x00c36400: true, 0x01021997: true,
		0x5346414f: true, 0x6b414653: true, 0x73757245: true, 0x564c: true, 0x7461636f: true,
		0x01161970: true,
		0x0bd00bd0: true, 0x47504653: true, 0x19830326: true, 0x20030528: true, 0x786f4256: true,
		// ext4, XFS, Btrfs, tmpfs, overlayfs, ZFS, F2FS, bcachefs, eCryptfs, ramfs, JFS
		0xef53: false, 0x58465342: false, 0x9123683e: false, 0x01021994: false, 0x794c7630: false,
		0x2fc12fc1: false,
		0xf2f52010: false, 0xca451a4e: false, 0xf15f: false, 0x858458f6: false, 0x3153464a: false,
	} {
		assert.Equal(t, refused, localfile.KindOf(magic) != "", "%#x", magic)
	}
}
