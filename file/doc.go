// Package file keeps locks on one host, by the kernel's file locks and without a
// server. It runs on Linux and macOS; elsewhere [New] returns an error that matches
// [errors.ErrUnsupported].
//
//	locks, err := file.New("/var/lib/myprogram/locks")
//	…
//	client := locker.New(locks, nil)
//
// Each lock is a file in that directory, locked with flock(2). Processes that use the
// same directory exclude each other, whatever language they are written in: `flock
// FILE command` in a shell script takes part, too.
//
// # What it promises
//
// There is at most one lease on a name at a time among the processes of one kernel,
// including containers that share the directory. No clock is involved, so leases have
// no deadline (locker.Lease.Until is a century away), and a lease is not lost while its
// process lives and its file stays.
//
// A lock is free at the moment when its holder's process ends, however it ends. The
// kernel does the waiting. A wait that is cancelled returns at once.
//
// Every lease has a fencing token, which is kept in the file and raised while the
// lock is held: one more than the last token, or the microseconds since 1970 if that
// is more. So tokens rise, whatever the clock does, for as long as the file exists.
// If the file was deleted, or lost its last changes in a crash of the machine
// (nothing here waits for a disk), tokens still rise unless the clock was set back to
// before the last token.
//
// # Shared locks
//
// Sharers (locker.Shared) lock the file shared, and the kernel keeps those out who want
// it alone. They have one token, which the first of them draws, until none of them is left
// and their MinHold is over (or, if somebody looks at the file just then, until a writer has
// had the lock). A sharer ends with its process at the latest, and the others stay.
//
// A second file, the turn, whose name ends in .turn instead of .lock, is made when a name
// is shared or waited for the first time. A writer that waits keeps it locked, and new
// sharers wait for it. The kernel ends that with the process of the writer, and the writer at
// once if it stops waiting. If the turn is deleted meanwhile, sharers may come in before that writer.
//
// `flock --shared FILE command` holds the lock beside sharers, and keeps writers out as
// they do; it does not look at the turn. A Backend lets in [driver.MaxSharers] of one
// name; how many there are in all is up to the number of files that are open. Inspect says
// how many where the system tells, as Linux does in /proc/locks (in a container, of its own
// processes only), and otherwise that there is one. The label is that of one of them, who may
// have left.
//
// A MinHold of a sharer keeps writers out, and not sharers, unless a writer waits for its
// end. One that is taken back (nobody was given the lock) ends when no other shares the
// lock, unless another sharer has asked for one, too: then the longest stays.
//
// # What it does not promise
//
// Another host is not kept out. Network, cluster and user-space file systems (NFS,
// SMB, CephFS, everything that is FUSE, the shared folders of virtual machines, and VxFS,
// which does not say whether it is one) are refused: there, locks end without notice, or mean
// something else.
//
// This package never deletes lock files, and nobody else may delete them while they
// are in use: the next caller would create a new file and lock that. The holder
// notices at its next renewal, within a third of its TTL, and its lease is lost; the
// new holder's token is higher. So keep cleaners of temporary files away from the
// directory. A file that nobody uses may be deleted: the next token of its name comes
// from the clock. Nothing else deletes it. To remove all of them, at a time when no
// program uses the directory and no MinHold lasts:
//
//	find DIR -maxdepth 1 -name '*.lock' -delete -o -name '*.turn' -delete
//
// [Backend.Check] counts them from 10,000 on. Choose names that are bounded:
// import/customer-17, and not import/2024-03-01T12:00:07.
//
// Waiters of different processes get the lock in no particular order. In practice
// each gets its turn, but a process that unlocks and locks again at once may be
// faster than a waiter. Inside one Client, the order is always first come, first
// served.
//
// A process that is stopped (SIGSTOP, a debugger) or stuck keeps its locks. If only
// the goroutine that holds a lock is stuck, locker.Options.MaxHold ends the hold.
// A process that is stopped while it waits can keep the turn, and new sharers out, until it
// goes on or ends. Writers do not wait for it.
//
// # Threads
//
// Waiting takes one thread for each file for which this Backend waits: the lock's, the turn
// if another has it, and the lock's once more if both sharers and writers wait for it. The
// kernel cannot cancel such a wait: after the caller has given up, the thread stays until
// it gets the lock, and then releases it at once, unless the next waiter for that file has
// adopted the thread by then. So a thread may outlive Close. The Backend has at most 256 of
// these threads; the Client polls for further names, and a writer that it polls for keeps no
// sharers out.
//
// Each held lock takes a file descriptor, and each name with waiters four at most.
//
// # Children
//
// The lock belongs to the open file, which locker.Lease.As returns in a **os.File.
// Its descriptor is closed on exec. A child that nevertheless gets it
// ([os/exec.Cmd.ExtraFiles]) holds the lock together with its parent: if the parent
// dies, the lock stays until the child ends. But Unlock, or Close of the Client,
// frees the lock for both: a parent that wants to leave the lock to its child ends
// without them. Do not close the file or unlock it by hand: the lease would not
// notice before its next renewal, or not at all.
//
// # Files
//
// The name of the file is the name of the lock, followed by .lock: small letters,
// digits and -_.,:@=+ stand for themselves, a capital letter is a ^ and the small
// letter, and any other byte is a % and two hexadecimal digits. "Orders/42" is
// ^orders%2f42.lock. File names have no capitals and only ASCII, so that no two names
// share a file on a file system that ignores case or normalizes Unicode. A name
// longer than 143 bytes, the limit of the strictest common file system, ends in ~ and
// its SHA-256 instead.
//
// The content of a file is for people: the token, the holder (nothing if the lock is free),
// with the process ID as the holder sees it, and the name. A file that is empty, or has
// nothing but zeros after a crash of the machine, is as a new one. If a file has other
// content, it is left alone, and Lock returns an error.
//
// # Several users
//
// A user who can open a lock file can hold the lock for ever. So [DefaultDir] has mode
// 0700 and belongs to one user. For several users,
// create a directory beforehand, with a group that they share (as root):
//
//	groupadd locks; usermod -a -G locks alice
//	install -d -m 2770 -g locks /var/lib/locker
//
// and give file:///var/lib/locker to each of them. Then that group can lock the
// files. In a directory that is open to all, such as /tmp, every user of the host can
// hold every lock, or delete its file.
//
// # Kept after its holder
//
// A lock with locker.MinHold is kept for that time even if its process ends: the
// lock file has the time, and every holder reads it first. The time is by the clock
// of the host: if the clock is set forward, the lock ends early; if it is set back,
// the lock lasts longer by as much, or until [Backend.Break]. `flock` in a shell script
// does not read this time.
//
// # URL
//
//	file:///absolute/directory
//
// has no host and no parameters of its own. The directory has to exist.
package file
