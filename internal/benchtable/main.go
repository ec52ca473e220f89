// Command benchtable reads what benchmarks print, over several rounds, and
// writes a table that compares each with the raw commands of the same client.
// scripts/bench runs the rounds; `make bench` is the whole. Benchmarks are kept short:
// a round of all packages is to take a few minutes.
//
// # What a benchmark has to look like
//
// The last part of its name is the contender, what stands before it is the topic:
//
//	BenchmarkUncontended/raw
//	BenchmarkUncontended/locker
//	BenchmarkUncontended/nodes=5/raw      (a topic of its own)
//	BenchmarkUncontended/nodes=5/locker
//
// A topic has a contender locker, and a contender raw if there are commands that
// do the same by hand; without raw, the first contender stands for it. There may be
// others, such as another library (compare/peers): each gets a row, compared with
// raw. Topics without locker are left out. scripts/bench looks for test files with a
// benchmark and with "locker" or ".../locker" as a name.
//
// The contenders of a topic use the same server and the same client and run one
// right after the other, so that a machine that becomes slower does so for all of
// them. They may take turns within one run: of contenders with the same name, to
// which the testing package adds #01, #02 and so on, each is a round.
//
// # What a benchmark has to report
//
// Targets are metrics of the contender locker, so that they stand where the
// benchmark does:
//
//	b.ReportMetric(1.10, "target-time")       // its ns/op is to be at most 1.10 × raw's
//	b.ReportMetric(3, "target-speed")         // its operations per second are to be at least 3 × raw's
//	b.ReportMetric(0.2, "commands/s")         // any other number,
//	b.ReportMetric(1, "target:commands/s")    // which is to be at most 1
//
// A benchmark that has no use for ns/op sets it to 0.
//
// # What the table says
//
// Ratios are the medians of the ratios of each round, other numbers are medians
// over the rounds; behind them is where the middle half of the rounds lies. A missed
// target is said so and is no error: what a machine can do is not known here. A
// benchmark that failed is one.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "benchtable:", err)
		os.Exit(1)
	}
}

// run prints what there is, and then says what failed.
func run(in io.Reader, out io.Writer) error {
	topics, failed := parse(in)
	return errors.Join(write(out, rowsOf(topics)), failed)
}
