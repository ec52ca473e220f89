package check_test

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/compare/internal/check"
	"github.com/golockers/locker/compare/internal/history"
)

// Ten million events are read and checked in less than two minutes, in less than a
// gigabyte: `make prove` asks for them with LOCKER_EVENTS=10000000. Without it
// there are fewer, and only the memory is looked at: it does not grow with them.
func TestManyEvents(t *testing.T) {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("LOCKER_EVENTS"), "200000"))
	require.NoError(t, err)
	const services = 4
	r := run()
	first := r.Services[0]
	r.Services = nil
	var readers []*history.Reader
	for i := range services {
		s := first
		s.Name = fmt.Sprint("s", i)
		r.Services = append(r.Services, s)
		out, in := io.Pipe()
		go func() { in.CloseWithError(journalOf(in, s.Name, n/services)) }()
		readers = append(readers, history.NewReader(s.Name, out))
	}
	var most uint64
	began, seen := time.Now(), 0
	report, err := check.Check(r, func(yield func(history.Event, error) bool) {
		for e, err := range history.Merge(readers...) {
			if seen++; seen%(n/20) == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.Sys)
			}
			if !yield(e, err) {
				return
			}
		}
	})
	took := time.Since(began)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, report.Events, int64(n*9/10))
	assert.Zero(t, report.Broken)
	t.Logf("%d events of %d trials in %v (%.0f ns each), in %d MiB",
		report.Events, report.Trials, took, float64(took)/float64(n), most>>20)
	assert.Less(t, most, uint64(256<<20))
	if n >= 10_000_000 {
		assert.Less(t, took, 2*time.Minute)
	}
}

// journalOf writes n events of callers that contend: half of them in one trial,
// the others in trials of five thousand.
func journalOf(to io.Writer, service string, n int) error {
	w := bufio.NewWriterSize(to, 1<<20)
	var line []byte
	at, token, seq := int64(1), uint64(0), uint64(0)
	put := func(e history.Event) {
		at += 1000
		e.At, e.Service = at, service
		line = e.AppendLine(line[:0])
		_, _ = w.Write(line)
	}
	for written, trial := 0, 0; written < n; trial++ {
		length := 5000
		if trial == 0 {
			length = n / 2
		}
		id := fmt.Sprint(service, "-", trial)
		put(history.Event{Kind: history.TrialBegin, Trial: id, Value: 1e9})
		for i := 0; i < length; i += 7 {
			e := history.Event{Trial: id, Process: fmt.Sprint(id, "-", i/7%3), Caller: i / 7 % 5,
				Name: "compare/" + id}
			is := func(kind history.Kind, until int64) {
				e.Kind, e.Until, e.Token, e.Seq = kind, until, 0, 0
				switch kind {
				case history.Granted:
					token++
					e.Token = token
				case history.Acted, history.Landed:
					e.Token, e.Seq = token, seq
				}
				put(e)
			}
			is(history.Ask, at+9e9)
			is(history.Granted, at+1e9)
			seq++
			is(history.Acted, 0)
			is(history.Landed, 0)
			is(history.Renewed, at+1e9)
			is(history.UnlockBegin, at+9e9)
			is(history.Unlocked, 0)
		}
		put(history.Event{Kind: history.TrialEnd, Trial: id})
		written += length
	}
	return w.Flush()
}
