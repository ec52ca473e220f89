// Package fileguard lets only the latest holder of a lock replace a file of one host:
// it compares the fencing token with the mark of the file, and moves the whole new
// content into place. It runs on Linux, macOS and FreeBSD; elsewhere [New] returns an
// error that matches [errors.ErrUnsupported].
//
//	guard, err := fileguard.New("/var/lib/myprogram/report.json")
//	…
//	err = fencing.Do(ctx, locks, "report", func(ctx context.Context) error {
//		token, err := fencing.TokenFor(ctx, "report")
//		if err != nil {
//			return err
//		}
//		return guard.WriteFile(ctx, token, report, 0o644)
//	})
//
// A program that reads the file needs no guard: the file at the path is always whole.
//
// # How it works
//
// The mark is in a small file beside the guarded one, its sidecar, which is locked
// with flock(2) during a write. A write
//
//  1. writes the new content to a file beside the old one, and syncs it to disk;
//  2. writes the mark to the sidecar, even if it is the same, and syncs it to disk;
//  3. renames the new file to the guarded path, and syncs the directory to disk.
//
// So the mark is never lower than the token of the content, whenever the process is
// killed or the power fails. It can be higher: a writer that was killed between the
// last two steps has raised the mark as [Guard.Raise] does. The kernel frees its lock,
// and the next write goes on.
//
// This needs a disk that keeps synced data, and a file system that honours fsync,
// renames in one step, and writes 512 bytes at the beginning of a file as one: ext4,
// XFS, Btrfs, ZFS and APFS do. Writes to one file happen one at a time, in no particular
// order. A write that is stopped in the middle (SIGSTOP, a hanging disk) blocks all
// others for as long; they wait until their contexts end.
//
// # Files
//
// Beside report.json, in the same directory, there are .report.json.fence, the
// sidecar, which stays (and where people read the mark), and, during a write, .report.json.fence-new. Files with such
// names cannot be guarded. Without its sidecar a file accepts a token of any age:
// delete the sidecar only if no holder of an old token can still be running. A sidecar
// with other content is an error until somebody has looked at it.
//
// A write makes a new file. The new file has the permissions, the owner and the group of
// the file that it replaces, or the write fails. Access control lists, extended attributes and SELinux
// labels are not kept, and set-id bits are dropped. Hard links to the file keep the
// old content.
//
// A path that is a symbolic link is refused, since the rename would replace the link
// and not the file. Symbolic links among the directories above are followed.
//
// All who write a file by the guard run as one user: the sidecar is that user's alone.
//
// # What it does not protect
//
//   - A program that writes the file without the guard (an editor, cp, a shell's >).
//   - Writes from another host. flock does not reach other hosts, so network, cluster
//     and user-space file systems are refused. A block device that two hosts mount is
//     not noticed.
//   - A mark that is lost: to a program that removes dot files, or in a directory that
//     was copied or restored from a backup without sidecars.
//   - Several files together: a holder that is killed between two writes leaves one
//     new file and one old.
package fileguard
