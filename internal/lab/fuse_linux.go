package lab

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MountFUSE mounts a file system that is not of this host's kernel alone, until the test ends. Nobody serves it: it is
// another user's, to whom the kernel tells of which type it is, and refuses everything else. The test is skipped where
// this process may not mount, as it is unless it runs as root, or where there is no FUSE.
func MountFUSE(t TB) (dir string) {
	t.Helper()
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err == nil {
		dir = filepath.Join(newDir(t, ""), "mnt")
		err = os.Mkdir(dir, 0o700)
		t.Cleanup(func() { _ = dev.Close() })
	}
	if err == nil {
		err = unix.Mount("test", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV,
			fmt.Sprintf("fd=%d,rootmode=40000,user_id=1,group_id=1", dev.Fd()))
	}
	if err != nil {
		t.Skip("lab: no FUSE here, or not for this user: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("lab: unmount %s: %v", dir, err)
		}
	})
	return dir
}
