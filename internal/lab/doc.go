// Package lab starts real lock services for tests, and breaks them on purpose.
//
// Nothing is mocked: a test gets a server of its own, on loopback and on a port of its own, which
// ends with the test. What it then does to the server, to the network and to the holder is meant to
// be what happens in production, and each kind of failure has one way to be made:
//
//   - The server stops answering and keeps its connections: [Process.Pause], undone by
//     [Process.Resume]. The kernel goes on accepting connections and bytes for it, so that requests
//     sent meanwhile are carried out after the pause.
//   - The server dies: [Process.Kill]. It comes back on its old port with [Process.Restart], with its
//     data if it was told to persist ([WithAppendOnly]) and empty if not.
//   - The server's wall clock jumps: [WithClock] and [Process.JumpClock].
//   - The primary dies and another takes over: [Sentinel.KillPrimary].
//   - The network cuts one off: a [Proxy] between client and server, for each direction by itself.
//     [Hold] keeps what is sent and delivers it later, even if the sender has hung up since: this is
//     what makes a ghost, the request that its sender gave up and that arrives all the same. [Drop]
//     is a black hole. [Reset] is a connection torn down. [Proxy.SetDelay] is a slow network.
//   - A request is carried out and its answer is lost, so that the client cannot know:
//     [Proxy.OnRequest] with [Link.Replies] of [Drop] (the client waits in vain: nothing else is possible
//     for a stream that has lost bytes) and [Proxy.CutReply] (the client sees a reset).
//   - The holder itself stops or dies: [StartChild] runs the test binary again in a role of its own,
//     which can be paused and killed like a server.
//   - A directory is not on a disk of this host: [MountFUSE], on Linux and as root only.
//
// What cannot be made here: loss and reordering of single packets (a byte stream shows neither), a
// machine that sleeps, a disk that lies.
//
// # What must be installed
//
// A test whose server is not installed is skipped, with a message that says what to install; with
// LOCKER_REQUIRE_SERVERS=1 it fails instead. See [Need], which is also where executables are looked
// up. Servers and children end with the test binary, on Linux even when it is killed.
//
// # Which goroutine may call what
//
// Functions and methods that take a [TB] end the test at once when they fail, so they belong
// on the goroutine that runs the test. All other methods may be called from any goroutine, hooks of
// [Proxy.OnRequest] included: they report a failure with Errorf and return.
package lab
