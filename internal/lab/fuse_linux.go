package lab

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MountFUSE mounts a file system with nothing in it, which this process serves:
// one that is not of this host's kernel alone. It is unmounted when the test
// ends. The test is skipped where this process may not mount, as it is unless it
// runs as root, or where there is no FUSE.
func MountFUSE(t TB) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("lab: only root can mount")
	}
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip("lab: no FUSE here: ", err)
	}
	dir = filepath.Join(t.TempDir(), "mnt")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatalf("lab: %v", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dev.Fd())
	if err := unix.Mount("test", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		_ = dev.Close()
		t.Skip("lab: cannot mount here: ", err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		serveFUSE(dev)
	}()
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil { // which ends serveFUSE
			t.Errorf("lab: unmount %s: %v", dir, err)
			return
		}
		<-served
		if err := dev.Close(); err != nil {
			t.Errorf("lab: %v", err)
		}
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
