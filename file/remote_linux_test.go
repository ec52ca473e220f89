package file_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/golockers/locker/file"
)

func TestFileSystemsOfMoreThanOneHostAreRefused(t *testing.T) {
	// From the file systems' own sources, not from the table under test.
	for magic, refused := range map[uint32]bool{
		0x6969: true, 0xff534d42: true, 0xfe534d42: true, 0x517b: true, 0x65735546: true, 0x00c36400: true, 0x01021997: true,
		0x5346414f: true, 0x6b414653: true, 0x73757245: true, 0x564c: true, 0x7461636f: true, 0x01161970: true,
		0x0bd00bd0: true, 0x47504653: true, 0x19830326: true, 0x20030528: true, 0x786f4256: true,
		// ext4, XFS, Btrfs, tmpfs, overlayfs, ZFS, F2FS, bcachefs, eCryptfs, ramfs, JFS
		0xef53: false, 0x58465342: false, 0x9123683e: false, 0x01021994: false, 0x794c7630: false, 0x2fc12fc1: false,
		0xf2f52010: false, 0xca451a4e: false, 0xf15f: false, 0x858458f6: false, 0x3153464a: false,
	} {
		assert.Equal(t, refused, file.RemoteKind(magic) != "", "%#x", magic)
	}
}

func TestDirectoryInUserSpaceIsRefused(t *testing.T) {
	dir := mountFUSE(t)
	_, err := file.New(dir)
	assert.EqualError(t, err, "lock directory "+dir+" is on a file system of type FUSE, where file locks are not kept by this host alone: choose one on a local disk")
}

// mountFUSE mounts a file system with nothing in it, which this process serves.
func mountFUSE(t *testing.T) (dir string) {
	t.Helper()
	needRoot(t)
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no FUSE here: ", err)
	}
	dir = filepath.Join(t.TempDir(), "mnt")
	require.NoError(t, os.Mkdir(dir, 0o700))
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dev.Fd())
	if err := unix.Mount("test", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		_ = dev.Close()
		t.Skip("cannot mount here: ", err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		serveFUSE(dev)
	}()
	t.Cleanup(func() {
		assert.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) // which ends serveFUSE
		<-served
		assert.NoError(t, dev.Close())
	})
	return dir
}

// serveFUSE answers what it takes to look at the root, until it is unmounted.
func serveFUSE(dev *os.File) {
	le := binary.LittleEndian
	request := make([]byte, 1<<17)
	for {
		n, err := unix.Read(int(dev.Fd()), request)
		if err == unix.EINTR || err == unix.ENOENT {
			continue
		}
		if err != nil || n < 40 {
			return
		}
		reply, failure := []byte(nil), unix.Errno(0)
		switch opcode := le.Uint32(request[4:]); opcode {
		case 26: // INIT
			reply = make([]byte, 64)
			le.PutUint32(reply, 7)
			le.PutUint32(reply[4:], 31)
			le.PutUint32(reply[20:], 1<<16)
		case 3: // GETATTR
			reply = make([]byte, 104)
			le.PutUint64(reply[16:], 1)
			le.PutUint32(reply[76:], unix.S_IFDIR|0o700)
			le.PutUint32(reply[80:], 2)
		case 17: // STATFS
			reply = make([]byte, 80)
		case 2, 38, 42: // FORGET, DESTROY, BATCH_FORGET: no answer
			continue
		default:
			failure = unix.ENOSYS
		}
		out := make([]byte, 16, 16+len(reply))
		le.PutUint32(out, uint32(16+len(reply)))
		le.PutUint32(out[4:], uint32(-int32(failure)))
		copy(out[8:], request[8:16])
		if _, err := unix.Write(int(dev.Fd()), append(out, reply...)); err != nil {
			return
		}
	}
}
