package check

import (
	"math"
	"math/bits"

	"github.com/golockers/locker/compare/internal/history"
)

// histogram counts durations in buckets whose bounds are 3 % apart.
type histogram struct {
	counts map[int]int64
	n, max int64
}

const steps = 32 // buckets between one power of two and the next

func (h *histogram) add(ns int64) {
	if h.counts == nil {
		h.counts = make(map[int]int64)
	}
	ns = max(ns, 0)
	h.counts[bucket(ns)]++
	h.n++
	h.max = max(h.max, ns)
}

// bucket is exact up to steps, and then has steps buckets for each power of two.
func bucket(ns int64) int {
	if ns < steps {
		return int(ns)
	}
	shift := bits.Len64(uint64(ns)) - bits.Len(steps) // ns>>shift is in [steps, 2*steps)
	return (shift+1)*steps + int(ns>>shift) - steps
}

// bound is the largest value of a bucket.
func bound(b int) int64 {
	if b < steps {
		return int64(b)
	}
	shift := b/steps - 1
	return (int64(b%steps)+steps+1)<<shift - 1
}

func (h *histogram) distribution(at curve) history.Distribution {
	d := history.Distribution{Service: at.service, Name: at.name, N: h.n, Max: h.max}
	want := []struct {
		share float64
		to    *int64
	}{{0.5, &d.P50}, {0.9, &d.P90}, {0.99, &d.P99}}
	var sum int64
	for b := 0; b <= bucket(h.max); b++ {
		if h.counts[b] == 0 {
			continue
		}
		sum += h.counts[b]
		up := min(bound(b), h.max)
		d.Points = append(d.Points, history.Point{NS: up, Count: sum})
		for len(want) > 0 && sum >= int64(math.Ceil(want[0].share*float64(h.n))) {
			*want[0].to = up
			want = want[1:]
		}
	}
	return d
}
