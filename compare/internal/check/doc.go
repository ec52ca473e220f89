// Package check judges histories: what was promised, what was seen. It is a pure function of a run's
// description and its events, in the order of time. It keeps the events of the trials that are under
// way, and judges each trial when it ends.
//
// # What it needs of a trial
//
// A trial is one try of one service, with one fault or none; its lock names are its own. Its events lie
// between its TrialBegin and its TrialEnd, which is written when all calls had the time to return, and
// all holders the time to be told. Callers other than the holder should ask while it holds, since a
// lock that nobody else wants proves nothing.
//
//   - All its locks share its fault: a trial is one observation, broken if one of them is.
//   - A fault has a FaultBegin before it and an Evidence when it was seen to have an effect. A trial
//     with a fault and without Evidence is set aside.
//   - A kill is a fault of class Killed, a stop one of class Stopped: its FaultBegin, before the
//     signal, names the process, and so does a stop's FaultEnd, after SIGCONT.
//   - Ask and UnlockBegin carry the deadline of their context in Until: an answer that is more than a
//     second late, or none by TrialEnd, is a call that hangs.
//   - For the order of waiters, they begin to wait at least 300 ms apart.
//   - At the end of a trial with a fault a caller asks for each name once more, with a deadline beyond
//     TTL and slack: it shows what was left behind.
//   - A Stall, of whichever process, is time that does not count where something was only too slow. It
//     never excuses two holders at once. Starved, of a server, excuses a lease that is lost, and
//     nothing else.
//
// A lease's belief begins with Granted and ends with the earliest of its latest Until, ToldLost,
// UnlockBegin, and the FaultBegin that kills its process. What each rule asks of these beliefs is in
// docs/compare.md, by the names for --require.
package check
