package localfile

import "golang.org/x/sys/unix"

func kindOf(st *unix.Statfs_t) string {
	return remoteKinds[uint32(st.Type)] // of another size on each architecture
}

// remoteKinds are the file systems that are refused, by the number that statfs
// gives them. Those in user space are among them: whether they hand locks on, to
// where, and whether a file keeps its inode number is up to a program that
// cannot be asked. So are those on a disk that several hosts share, and those that only
// may be, such as VxFS, and directories that a virtual machine has of its host.
var remoteKinds = map[uint32]string{
	unix.NFS_SUPER_MAGIC:   "NFS",
	unix.SMB_SUPER_MAGIC:   "SMB",
	unix.SMB2_SUPER_MAGIC:  "SMB",
	unix.CIFS_SUPER_MAGIC:  "SMB",
	unix.FUSE_SUPER_MAGIC:  "FUSE",
	unix.CEPH_SUPER_MAGIC:  "CephFS",
	unix.V9FS_MAGIC:        "9P",
	unix.AFS_SUPER_MAGIC:   "AFS",
	unix.AFS_FS_MAGIC:      "AFS",
	unix.CODA_SUPER_MAGIC:  "Coda",
	unix.NCP_SUPER_MAGIC:   "NCP",
	unix.OCFS2_SUPER_MAGIC: "OCFS2",
	0x01161970:             "GFS2",
	0x0bd00bd0:             "Lustre",
	0x47504653:             "GPFS",
	0x19830326:             "BeeGFS",
	0x20030528:             "OrangeFS",
	0xaad7aaea:             "PanFS",
	0xbeefdead:             "StorNext",
	0x61636673:             "ACFS",
	0x013111a8:             "IBRIX",
	0xa501fcf5:             "VxFS",
	0x786f4256:             "vboxsf",
	0xbacbacbc:             "vmhgfs",
	0x7c7c6673:             "prl_fs",
	0x00c0ffee:             "hostfs",
}
