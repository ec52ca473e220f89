// Package fileguard lets a file of one host be replaced only by the latest
// holder of a lock: it compares the fencing token with the mark of the file, and
// moves a whole new content into place. It runs on Linux, macOS and FreeBSD;
// elsewhere [New] returns an error that matches [errors.ErrUnsupported].
//
//	guard, err := fileguard.New("/var/lib/myprogram/report.json")
//	…
//	err = fencing.Do(ctx, l, "report", func(ctx context.Context) error {
//		token, err := fencing.TokenFor(ctx, "report")
//		if err != nil {
//			return err
//		}
//		return guard.WriteFile(ctx, token, report, 0o644)
//	})
//
// A program that reads the file needs no guard: what is at its path is always
// whole.
//
// # How it works
//
// The mark is in a small file beside the guarded one, its sidecar, which is
// locked with flock(2) during a write. A write
//
//  1. puts the new content into a file beside the old, and makes that last (fsync);
//  2. raises the mark in the sidecar, and makes that last;
//  3. renames the new file to the guarded path, and makes that last.
//
// So the mark is never lower than the token of the content, whenever the process
// is killed or the power is cut. It can be higher: a writer that was killed
// between the last two steps has raised it as [Guard.Raise] does, and keeps out
// all before it. The kernel frees its lock, and the next write goes on.
//
// That holds on disks that have what they say they have, with a file system that
// keeps what fsync was for, renames in one step, and writes 512 bytes at the
// beginning of a file as one: ext4, XFS, Btrfs, ZFS and APFS do.
//
// # Waiting
//
// Writes to one file happen one at a time, in no particular order; their
// contexts bound how long they wait. One that is stopped in the middle (SIGSTOP,
// a hanging disk) holds up all others for as long.
//
// # Files
//
// For report.json there are, in the same directory, .report.json.fence, the
// sidecar, which stays, and .report.json.fence-new during a write. Files with
// such names cannot be guarded themselves. Without its sidecar a file takes a
// token of any age: delete that only if no holder of an old token can still be
// there. A sidecar with something else in it is an error, until somebody has
// looked.
//
// A new content is a new file. It has the permissions and the group of the one
// that it replaces, or the write fails; it has the owner, too, if the process may
// give files away, as root may. Access control lists, extended attributes and
// SELinux labels are not carried over, and set-id bits are dropped. Hard links to
// the file keep the old content.
//
// A path that is a symbolic link is refused, since the link would be replaced and
// not the file. Symbolic links among the directories above are followed. The
// directory has to exist. One file has one mark, whatever path of its directory
// was given.
//
// Whoever may write in the directory may write with the guard: sidecars let in
// those that the directory's permissions let in. For several users with one
// group, give the directory that group and the set-group-ID bit (chmod g+ws).
//
// # What it does not protect against
//
//   - A program that writes the file without the guard (an editor, cp, a shell's >).
//   - Another host. There flock means nothing, so network, cluster and user-space
//     file systems are refused. A block device that two hosts mount is not found out.
//   - A mark that is lost: a cleaner of dot files, a directory that was copied or
//     restored from a backup without sidecars.
//   - Guards of several files know nothing of each other: a holder that is killed
//     between two writes leaves one new and one old.
package fileguard
