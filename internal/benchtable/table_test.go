package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// table runs the command on text and returns its lines, with the spaces
// between columns made single.
func table(t *testing.T, text string) []string {
	t.Helper()
	var out strings.Builder
	require.NoError(t, run(strings.NewReader(text), &out))
	var lines []string
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func TestRatioIsTheMedianOfTheRounds(t *testing.T) {
	// The third round met a machine half as fast: its ratio is as good as any.
	lines := table(t, `
pkg: example.org/x/single
BenchmarkUncontended/raw-2      1000  100 ns/op  1.100 target-time
BenchmarkUncontended/locker-2   1000  150 ns/op  1.100 target-time
BenchmarkUncontended/raw#01-2   1000  100 ns/op
BenchmarkUncontended/locker#01-2 1000  110 ns/op
PASS
pkg: example.org/x/single
BenchmarkUncontended/raw-2      1000  200 ns/op
BenchmarkUncontended/locker-2   1000  240 ns/op
`)
	assert.Equal(t, []string{
		"ratio rounds target benchmark medians",
		"1.20 1.10-1.50 <= 1.10 missed single Uncontended 200ns, raw 100ns",
	}, lines)
}

func TestTargets(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"time met": {"BenchmarkA/raw 1 100 ns/op\nBenchmarkA/locker 1 109 ns/op 1.1 target-time",
			"1.09 <= 1.10 met p A 100ns, raw 100ns"},
		"speed met": {"BenchmarkA/raw 1 300 ns/op\nBenchmarkA/locker 1 100 ns/op 3 target-speed",
			"3.00 >= 3.00 met p A 10000000/s, raw 3333333/s"},
		"speed": {"BenchmarkA/raw 1 200 ns/op\nBenchmarkA/locker 1 100 ns/op 3 target-speed",
			"2.00 >= 3.00 missed p A 10000000/s, raw 5000000/s"},
		"none":       {"BenchmarkA/raw 1 200 ns/op\nBenchmarkA/locker 1 100 ns/op", "0.50 p A 100ns, raw 200ns"},
		"number met": {"BenchmarkA/locker 1 0.5 x/s 1 target:x/s", "0.5 <= 1 met p A x/s"},
		"number":     {"BenchmarkA/locker 1 1.5 x/s 1 target:x/s", "1.5 <= 1 missed p A x/s"},
		"no raw":     {"BenchmarkA/locker 1 2500 ns/op", "2.5µs p A per operation"},
		"two rounds": {"BenchmarkA/locker 1 1 x\nBenchmarkA/locker 1 2 x", "1.5 1-2 p A x"},
		"of variants": {"BenchmarkA/n=5/raw-8 1 100 ns/op\nBenchmarkA/n=5/locker-8 1 100 ns/op",
			"1.00 p A/n=5 100ns, raw 100ns"},
		"memory": {"BenchmarkA/locker 1 9 B/op 3 allocs/op 2 x", "2 p A x"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, table(t, "pkg: a/p\n"+tc.in)[1])
		})
	}
}

func TestOtherContendersHaveRowsButNoTargets(t *testing.T) {
	lines := table(t, `pkg: a/p
BenchmarkA/raw 1 100 ns/op 3 target-speed
BenchmarkA/locker 1 50 ns/op 3 target-speed
BenchmarkA/other 1 20 ns/op 3 target-speed
BenchmarkB/peer 1 100 ns/op 7 µs/pair
BenchmarkB/locker 1 50 ns/op 5 µs/pair 2 target-speed`)
	assert.Equal(t, []string{
		"2.00 >= 3.00 missed p A 20000000/s, raw 10000000/s",
		"5.00 p A (other) 50000000/s, raw 10000000/s",
		"2.00 >= 2.00 met p B 20000000/s, peer 10000000/s",
		"",
		"value rounds target benchmark unit",
		"7 p B (peer) µs/pair",
		"5 p B µs/pair",
	}, lines[1:])
}

func TestPackagesAreKeptApart(t *testing.T) {
	lines := table(t, `pkg: a/one
BenchmarkA/raw 1 100 ns/op
BenchmarkA/locker 1 100 ns/op
pkg: a/two
BenchmarkA/raw 1 100 ns/op
BenchmarkA/locker 1 300 ns/op`)
	assert.Equal(t, []string{"1.00 one A 100ns, raw 100ns", "3.00 two A 300ns, raw 100ns"}, lines[1:])
}

func TestRatiosStandFirst(t *testing.T) {
	lines := table(t, `pkg: a/p
BenchmarkA/locker 1 7 things
BenchmarkB/raw 1 100 ns/op
BenchmarkB/locker 1 100 ns/op 5 things`)
	assert.Equal(t, []string{
		"ratio rounds target benchmark medians",
		"1.00 p B 100ns, raw 100ns",
		"",
		"value rounds target benchmark unit",
		"7 p A things",
		"5 p B things",
	}, lines)
}

func TestWhatIsNoComparisonIsLeftOut(t *testing.T) {
	lines := table(t, `pkg: a/p
goos: linux
BenchmarkPlain-2 1 100 ns/op
BenchmarkB/raw 1 100 ns/op
BenchmarkB/node 1 100 ns/op
BenchmarkC/locker
BenchmarkC/locker 1 2 things
ok a/p 1s`)
	assert.Equal(t, []string{"2 p C things"}, lines[1:])
}

func TestFailuresAreErrors(t *testing.T) {
	for name, text := range map[string]string{
		"failed":  "pkg: a/p\nBenchmarkA/locker 1 2 things\n    --- FAIL: BenchmarkB/locker\n",
		"begun":   "pkg: a/p\nBenchmarkA/locker 1 2 things\nBenchmarkB/locker-2 \t--- FAIL: BenchmarkB/locker-2\n",
		"panic":   "pkg: a/p\nBenchmarkA/locker 1 2 things\npanic: no\n",
		"nothing": "pkg: a/p\nPASS\n",
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			require.Error(t, run(strings.NewReader(text), &out))
			assert.Equal(t, name != "nothing", strings.Contains(out.String(), "p A"),
				"what did not fail is shown all the same")
		})
	}
}
