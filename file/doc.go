// Package file keeps locks on one host with the kernel's file locks, without a server. It runs on Linux
// and macOS; elsewhere [New] returns an error that matches [errors.ErrUnsupported].
//
//	locks, err := file.New("/var/lib/myprogram/locks")
//	…
//	client, err := locker.New(locks, nil)
//
// Each lock is a file in that directory, locked with flock(2). Processes that use the same directory
// exclude each other, in whatever language they are written, including `flock FILE command` in a shell
// script.
//
// # What it promises
//
// There is at most one lease on a name at a time among the processes of one kernel,
// including containers that share the directory. No clock is involved, so leases have
// no deadline (locker.Lease.Until is a century away), and a lease is not lost while its
// process lives and its file stays.
//
// A lock is free as soon as its holder's process ends, however it ends. The kernel does the waiting. A
// canceled wait returns at once.
//
// Every lease has a fencing token, which is kept in the file and raised while the lock is held: one
// more than the last token, or the microseconds since 1970 if that is more. So tokens increase,
// whatever the clock does, for as long as the file exists. If the file was deleted, or lost its last
// changes in a crash of the machine (this package does not wait for the disk), tokens still increase
// unless the clock was set back to before the last token.
//
// # Shared locks
//
// Sharers (locker.Shared) lock the file shared, and the kernel keeps exclusive requests out. Sharers
// have one token, which the first of them draws; it is used until all have left and their MinHold has
// ended (or, if the file is being inspected just then, until a writer has had the lock). A sharer's
// hold ends with its process at the latest, and the other sharers stay.
//
// When a name is first shared or waited for, a second file is created, the turn, whose name ends in
// .turn instead of .lock. A waiting writer keeps it locked, and new sharers wait for it. The turn is
// unlocked when the writer stops waiting or its process ends. If the turn is deleted meanwhile, sharers
// may get in before that writer.
//
// `flock --shared FILE command` holds the lock alongside sharers, and keeps writers out as they do; it
// ignores the turn. A Backend admits [driver.MaxSharers] per name; across Backends, the limit is the
// number of open files. Inspect reports the number of sharers if the system shows it, as Linux does in
// /proc/locks (in a container, only for its own processes), and otherwise 1. The label is that of one
// sharer, which may have left.
//
// A sharer's MinHold keeps writers out, and sharers only if a writer waits for its end. A MinHold that
// is taken back (its lock was never given out) ends at once or, if a writer waits, when no other sharer
// holds the lock. But if another sharer has also asked for a MinHold, the longest one stays.
//
// # What it does not promise
//
// It does not exclude other hosts. Network, cluster and user-space file systems are refused, because
// there locks end without notice or mean something else: NFS, SMB, CephFS, everything in FUSE, the
// shared folders of virtual machines, and VxFS, which does not say whether it is a cluster file system.
//
// This package never deletes lock files, and nobody else may delete them while they are in use: the
// next caller would create a new file and lock that one. The holder notices at its next renewal, within
// a third of its TTL, and its lease is lost; the new holder's token is higher. So keep cleaners of
// temporary files away from the directory. An unused file may be deleted: the next token of its name
// then comes from the clock. To remove all of them, while no program uses the directory and no MinHold
// is running:
//
//	find DIR -maxdepth 1 -name '*.lock' -delete -o -name '*.turn' -delete
//
// [Backend.Check] reports their number from 10,000 on. Choose names from a bounded set:
// import/customer-17, not import/2024-03-01T12:00:07.
//
// Waiters of different processes get the lock in no particular order. In practice each gets its turn,
// but a process that unlocks and locks again at once may be faster than a waiter. Inside one Client,
// the order is always first come, first served.
//
// A process that is stopped (SIGSTOP, a debugger) or stuck keeps its locks. If only the goroutine that
// holds a lock is stuck, locker.Options.MaxHold ends the hold. A process that is stopped while it waits
// can keep the turn, and so new sharers out, until it continues or ends. Writers do not wait for it.
//
// # Threads
//
// Waiting takes one thread for each file that this Backend waits for: the lock file, the turn if
// another has it, and the lock file once more if both sharers and writers wait for it. The kernel
// cannot cancel such a wait: after the caller has given up, the thread stays until it gets the lock and
// then releases it at once, unless the next waiter for that file has taken over the thread. So a thread
// may outlive Close. The Backend has at most 256 of these threads. For further names the Client polls,
// and a polling writer keeps no sharers out.
//
// Each held lock takes a file descriptor, and each name with waiters at most four.
//
// # Children
//
// The lock belongs to the open file, which locker.Lease.As returns in a **os.File. Its descriptor is
// closed on exec. A child that gets it anyway ([os/exec.Cmd.ExtraFiles]) holds the lock together with
// its parent: if the parent dies, the lock stays until the child ends. But Unlock, or Close of the
// Client, frees the lock for both: a parent that wants to leave the lock to its child must end without
// calling them. Do not close or unlock the file by hand: the lease would not notice before its next
// renewal, or not at all.
//
// # Files
//
// The file name is the lock's name followed by .lock. Lower-case letters, digits and -_.,:@=+ stand for
// themselves; a capital letter becomes a ^ and its lower-case letter, and any other byte a % and two
// hexadecimal digits. "Orders/42" is ^orders%2f42.lock. File names have no capitals and only ASCII, so
// that no two names share a file on a file system that ignores case or normalizes Unicode. A name
// longer than 143 bytes, the limit of the strictest common file system, ends in ~ and its SHA-256
// instead.
//
// The content of a file is for people: the token, the holder (empty if the lock is free) with the
// process ID as the holder sees it (none if the lock is only kept), the end of a MinHold, and the name.
// A file that is empty, or all zeros after a crash of the machine, counts as new. A file with other
// content is left alone, and Lock returns an error.
//
// # Several users
//
// A user who can open a lock file can hold the lock forever. So [DefaultDir] has mode 0700 and belongs
// to one user. For several users, create a directory beforehand, with a group that they share (as
// root):
//
//	groupadd locks; usermod -a -G locks alice
//	install -d -m 2770 -g locks /var/lib/locker
//
// and give file:///var/lib/locker to each of them. Then that group can lock the files. In a directory
// open to all, such as /tmp, every user of the host can hold every lock or delete its file.
//
// # Kept after its holder
//
// A lock with locker.MinHold is kept for that time even if its holder unlocks it or its process ends:
// the time is in the lock file, and every holder reads it first. It is by the host's clock: if the
// clock is set forward, the lock ends early; if it is set back, the lock lasts longer by as much, or
// until [Backend.Break]. `flock` in a shell script ignores this time.
//
// # URL
//
//	file:///absolute/directory
//
// has no host and no parameters of its own. The directory must exist.
package file
