// Package fileguard lets a file of one host be replaced only by the latest
// holder of a lock: it compares the fencing token with the mark of the file, and
// moves the mark and a whole new content into place as one step. It runs on
// Linux, macOS and FreeBSD; elsewhere [New] returns an error that matches
// [errors.ErrUnsupported].
//
//	guard, err := fileguard.New("/var/lib/myprogram/report.json")
//	…
//	err = fencing.Do(ctx, l, "report", func(ctx context.Context) error {
//		token, err := fencing.FromContext(ctx)
//		if err != nil {
//			return err
//		}
//		return guard.WriteFile(ctx, token, report, 0o644)
//	})
//
// Who reads the file needs no guard: what is at its path is always whole.
//
// # How it is one step
//
// The mark is in a small file beside the guarded one, its sidecar, which is
// locked with flock(2) during a write. A write
//
//  1. puts the new content into a file beside the old, and makes that last (fsync);
//  2. notes in the sidecar what the mark is, what it is to be, and the inode of
//     the new file, and makes that last;
//  3. renames the new file to the guarded path, and makes that last;
//  4. notes the new mark.
//
// A process that is killed leaves the lock free, and one of these states. The
// next call finds in the sidecar what was about to happen, and sees by the inode
// where the new file is: still beside the old one, then the mark has not moved
// either; not there any more, then both have. [Guard.Remove] goes the same way,
// with the file renamed away. What was left over is removed by the next write.
//
// So mark and content agree after a kill at any moment. They do after a power
// cut, too, if the disk has what it says it has, and the file system keeps
// what fsync of a file or directory was for, renames in one step, and writes
// 512 bytes at the beginning of a file as one: ext4, XFS, Btrfs, ZFS and APFS on
// usual disks do.
//
// # Waiting
//
// Writes to one file happen one at a time, in no particular order; their
// contexts bound how long they wait. One that is stopped in the middle
// (SIGSTOP, a hanging disk, a fill that takes its time) holds up all others for
// as long, those with higher tokens too: the kernel frees the lock when the
// process ends. Reading waits for nobody.
//
// # Files
//
// For report.json there are, in the same directory, .report.json.fence, the
// sidecar, which stays, and .report.json.fence-new during a write. Files
// with such names cannot be guarded themselves. Neither may be deleted or
// edited: without its sidecar, a file takes a token of any age; a sidecar with
// something else in it is an error, until somebody has looked.
//
// A new content is a new file. It has the permissions and the group of the one
// that it replaces, or the write fails. It has the owner, too, if the process
// may give files away, as root may; otherwise it belongs to whoever wrote it. Access control
// lists, extended attributes and SELinux labels are not carried over, and set-id
// bits are dropped. Other names of the file (hard links) keep the old content,
// and programs that have it open read on in the old content.
//
// A path that is a symbolic link is refused, since the link would be replaced
// and not the file: guard the file under its own name. Symbolic links among the
// directories above are followed when [New] is called and ever after. The
// directory has to exist; slashes mean what they mean. One file has one mark,
// whatever path of its directory was given.
//
// Whoever may write in the directory may write with the guard: sidecars let in
// those that the directory's permissions let in. For several users with one
// group, give the directory that group and the set-group-ID bit (chmod g+ws).
// All others can read the file as its own permissions say, but not its mark.
//
// # What it does not protect against
//
//   - Who writes to the file without the guard (an editor, cp, a shell's >) is
//     not held up. The mark then knows nothing of it. And a file that is deleted
//     (rm) and made again by hand can get the inode that a [Guard.Remove] has noted:
//     after a power cut, or a kill in the middle, the mark may then be the one before.
//   - One host only. On another host flock means nothing, so network, cluster and
//     user-space file systems are refused. A disk image or a block device that
//     two hosts mount is not found out.
//   - A mark that is lost lets a token of any age pass: a sidecar that was
//     deleted ([Guard.Forget], a cleaner of dot files), a directory that was
//     restored from a backup or copied without them. A backup that is taken
//     during a write may have the higher mark and the old content.
//   - Guards of several files know nothing of each other: a holder that is killed
//     between two writes leaves one new and one old.
//   - One holder's own writes, of one token, are not ordered by it.
package fileguard
