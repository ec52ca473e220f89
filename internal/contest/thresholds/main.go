// Thresholds reads what the rounds of scripts/bench have printed, and says which of the figures that this library is
// held to are met. Each is a ratio of the medians of two contenders in one run, with a tolerance of 3 %. It
// is for a quiet machine: on another the ratios are noise.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
)

const tolerance = 0.03

// threshold bounds how many times as much of a unit ours takes as another contender does.
type threshold struct {
	what         string
	topic        string // a regular expression of what stands before the contender's name
	ours, theirs string
	unit         string
	most         float64
}

// Throughput of at least r times another's is time of at most 1/r times it.
var thresholds = []threshold{
	{"one Redis, 256 callers, next to fc6f864", `^BenchmarkRedis/beside=\w+/free,goroutines=256$`, "locker", "before", "ns/op", 1},
	{"one Redis, 256 callers, next to bare AutoPipeline", `^BenchmarkRedis/beside=\w+/free,goroutines=256$`, "locker", "raw", "ns/op", 1 / 0.85},
	{"one Redis, 256 callers, next to redsync", `^BenchmarkRedis/beside=redsync/free,goroutines=256$`, "locker", "redsync", "ns/op", 1},
	{"one Redis, 256 callers, next to redislock", `^BenchmarkRedis/beside=redislock/free,goroutines=256$`, "locker", "redislock", "ns/op", 1},
	{"one Redis, one caller, cores awake, next to raw", `^BenchmarkAwake/beside=\w+/free,goroutines=1$`, "locker", "raw", "ns/op", 1.15},
	{"one Redis, one caller, cores awake, next to redislock", `^BenchmarkAwake/beside=redislock/free,goroutines=1$`, "locker", "redislock", "ns/op", 1.1},
	{"one Redis, one caller, idle machine, next to redislock", `^BenchmarkRedis/beside=redislock/free,goroutines=1$`, "locker", "redislock", "ns/op", 1.25},
	{"redlock, 256 callers, next to fc6f864", `^BenchmarkFiveRedis/free,goroutines=256$`, "locker", "before", "ns/op", 1},
	{"redlock, 256 callers, next to redsync", `^BenchmarkFiveRedis/free,goroutines=256$`, "locker", "redsync", "ns/op", 1},
	{"redlock, 256 callers, fenced next to unfenced", `^BenchmarkFiveRedis/free,goroutines=256$`, "fenced", "locker", "ns/op", 1 / 0.6},
	{"redlock, 4096 callers, next to redsync", `^BenchmarkFiveRedis/free,goroutines=4096$`, "locker", "redsync", "ns/op", 1},
	{"one name, 4 × 16 callers, next to redislock", `^BenchmarkRedis/beside=redislock/clients=4,goroutines=64$`, "locker", "redislock", "ns/op", 1},
	{"one name, 4 × 16 callers, p99 next to fc6f864", `^BenchmarkRedis/beside=\w+/clients=4,goroutines=64$`, "locker", "before", "p99-ns", 1},
	{"etcd, 256 callers, next to fc6f864", `^BenchmarkContest/synced/free,goroutines=256$`, "locker", "before", "ns/op", 1},
	{"etcd, 256 callers, next to concurrency", `^BenchmarkContest/synced/free,goroutines=256$`, "locker", "concurrency", "ns/op", 1 / 0.9},
	{"etcd, one caller, next to raw", `^BenchmarkContest/synced/free,goroutines=1$`, "locker", "raw", "ns/op", 1.15},
	{"etcd, one name, 4 × 16 callers, next to fc6f864", `^BenchmarkContest/synced/clients=4,goroutines=64$`, "locker", "before", "ns/op", 1},
	{"etcd, one name, 4 × 16 callers, next to concurrency", `^BenchmarkContest/synced/clients=4,goroutines=64$`, "locker", "concurrency", "ns/op", 1},
	{"ZooKeeper, 256 callers, next to fc6f864", `^BenchmarkContest/free,goroutines=256$`, "locker", "before", "ns/op", 1},
	{"ZooKeeper, 256 callers, next to zk.Lock", `^BenchmarkContest/free,goroutines=256$`, "locker", "zk.Lock", "ns/op", 1},
	{"ZooKeeper, one caller, next to raw", `^BenchmarkContest/free,goroutines=1$`, "locker", "raw", "ns/op", 1.25},
	{"ZooKeeper, one name, 4 × 16 callers, next to fc6f864", `^BenchmarkContest/clients=4,goroutines=64$`, "locker", "before", "ns/op", 1},
	{"ZooKeeper, one name, 4 × 16 callers, next to zk.Lock", `^BenchmarkContest/clients=4,goroutines=64$`, "locker", "zk.Lock", "ns/op", 1},
	{"PostgreSQL, one caller, fsync, next to fc6f864", `^BenchmarkUncontended/fsync=on$`, "locker", "before", "ns/op", 1.25},
	{"PostgreSQL, one caller, no fsync, next to fc6f864", `^BenchmarkUncontended/fsync=off$`, "locker", "before", "ns/op", 1.25},
	{"PostgreSQL, 256 callers, next to fc6f864", `^BenchmarkCallers256$`, "locker", "before", "ns/op", 1.4},
}

var line = regexp.MustCompile(`^(Benchmark\S*)/([A-Za-z0-9.+]+)(?:#\d+)?(?:-\d+)?\s+\d+\s+(.*)$`)

// figures has the values of each round, by topic, contender and unit.
type figures map[[3]string][]float64

func read(r io.Reader) (figures, error) {
	all := figures{}
	in := bufio.NewScanner(r)
	for in.Scan() {
		m := line.FindStringSubmatch(in.Text())
		if m == nil {
			continue
		}
		values := regexp.MustCompile(`\s+`).Split(m[3], -1)
		for i := 0; i+1 < len(values); i += 2 {
			v, err := strconv.ParseFloat(values[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", in.Text(), err)
			}
			key := [3]string{m[1], m[2], values[i+1]}
			all[key] = append(all[key], v)
		}
	}
	return all, in.Err()
}

// median is that of all rounds of the topics that match; 0: there are none.
func (f figures) median(topic *regexp.Regexp, contender, unit string) float64 {
	var all []float64
	for key, values := range f {
		if topic.MatchString(key[0]) && key[1] == contender && key[2] == unit {
			all = append(all, values...)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// judge writes a line for each threshold, and reports whether all are met.
func judge(w io.Writer, f figures) (met bool) {
	met = true
	for _, t := range thresholds {
		topic := regexp.MustCompile(t.topic)
		ours, theirs := f.median(topic, t.ours, t.unit), f.median(topic, t.theirs, t.unit)
		verdict := "met"
		switch {
		case ours == 0 || theirs == 0:
			verdict, met = "not measured", false
		case ours > theirs*t.most*(1+tolerance):
			verdict, met = "not met", false
		}
		ratio := 0.0
		if theirs > 0 {
			ratio = ours / theirs
		}
		_, _ = fmt.Fprintf(w, "%-56s %.2f × (%s), %.2f at most: %s\n", t.what, ratio, t.unit, t.most, verdict)
	}
	return met
}

func main() {
	f, err := read(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	judge(os.Stdout, f)
}
