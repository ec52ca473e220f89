// Package fileguard lets only the latest holder of a lock replace a file on one host: it compares the
// fencing token with the file's mark, and moves the whole new content into place. It runs on Linux,
// macOS and FreeBSD; elsewhere [New] returns an error that matches [errors.ErrUnsupported].
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
// A program that reads the file needs no guard: the file at the path is always complete.
//
// # How it works
//
// The mark is in a small file next to the guarded one, its sidecar, which is locked with flock(2)
// during a write. A write
//
//  1. writes the new content to a file next to the old one, and syncs it to disk;
//  2. writes the mark to the sidecar, even if it is the same, and syncs it to disk;
//  3. renames the new file to the guarded path, and syncs the directory to disk.
//
// So the mark is never lower than the token of the content, whenever the process is killed or the power
// fails. It can be higher: a writer killed between the last two steps has raised the mark, as
// [Guard.Raise] does. The kernel frees its lock, and the next write proceeds.
//
// This needs a disk that keeps synced data, and a file system that honors fsync, renames atomically,
// and writes the first 512 bytes of a file atomically: ext4, XFS, Btrfs, ZFS and APFS do. Writes to one
// file happen one at a time, in no particular order. A write that is stopped halfway (SIGSTOP, a
// hanging disk) blocks all others meanwhile; they wait until their contexts end.
//
// # Files
//
// Next to report.json, in the same directory, are .report.json.fence, the sidecar, which stays and
// shows the mark to people, and, during a write, .report.json.fence-new. Files with such names cannot
// be guarded. Without its sidecar a file accepts a token of any age: delete the sidecar only if no
// holder of an old token can still be running. A sidecar with other content is an error until a person
// has dealt with it.
//
// A write creates a new file. It has the permissions, the owner and the group of the file that it
// replaces, or the write fails. Access control lists, extended attributes and SELinux labels are not
// kept, and set-id bits are dropped. Hard links to the file keep the old content.
//
// A path that is a symbolic link is refused, because the rename would replace the link and not the
// file. Symbolic links in the directories above are followed.
//
// All programs that write a file with the guard must run as one user, to whom the sidecar belongs.
//
// # What it does not protect
//
//   - A program that writes the file without the guard (an editor, cp, a shell's >).
//   - Writes from another host. flock does not reach other hosts, so network, cluster and user-space
//     file systems are refused. A block device mounted by two hosts is not detected.
//   - A lost mark: removed by a program that deletes dot files, or missing in a directory that was
//     copied or restored without sidecars.
//   - Several files together: a holder that is killed between two writes leaves one new file and one
//     old.
package fileguard
