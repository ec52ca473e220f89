// Package history is what `locker compare` writes down while it runs and reads again to judge: one
// journal for each process that takes part, a description of the run beside them, and the report that
// comes out.
//
// A journal is a file of [Event] values, one JSON object on a line, in the order of time. All times are
// nanoseconds of the host's monotonic clock, which is one for all processes, see [Now]. A directory of
// a run holds
//
//	run.json      a [Run]: the machine, the services, the faults
//	*.jsonl       the journals, one of the parent and one of each child
//	report.json   a [Report]
//	report.html   the same for people
package history
