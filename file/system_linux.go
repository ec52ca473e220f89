package file

import "golang.org/x/sys/unix"

// remoteKind returns the name of a file system that is not one of this host
// alone, and "" for all others. Those in user space are among them: whether
// they hand locks on, to where, and whether a file keeps its inode number is
// up to a program that cannot be asked.
func remoteKind(st *unix.Statfs_t) string {
	return kindOf(uint32(st.Type)) // of another size on each architecture
}

func kindOf(magic uint32) string {
	switch magic {
	case unix.NFS_SUPER_MAGIC:
		return "NFS"
	case unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC:
		return "SMB"
	case unix.FUSE_SUPER_MAGIC:
		return "FUSE"
	case unix.CEPH_SUPER_MAGIC:
		return "CephFS"
	case unix.V9FS_MAGIC:
		return "9P"
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return "AFS"
	case unix.CODA_SUPER_MAGIC:
		return "Coda"
	case unix.NCP_SUPER_MAGIC:
		return "NCP"
	case unix.OCFS2_SUPER_MAGIC:
		return "OCFS2"
	case 0x01161970:
		return "GFS2"
	case 0x0bd00bd0:
		return "Lustre"
	case 0x47504653:
		return "GPFS"
	case 0x19830326:
		return "BeeGFS"
	case 0x20030528:
		return "OrangeFS"
	case 0x786f4256:
		return "vboxsf"
	}
	return ""
}
