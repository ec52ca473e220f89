package history_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/compare/internal/history"
)

// read is a whole history, up to its first error.
func read(dir string) (all []history.Event, err error) {
	for e, err := range history.Read(dir) {
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

// What a journal writes is what is read, whatever is in the strings.
func TestJournalsComeBackAsTheyWereWritten(t *testing.T) {
	full := history.Event{
		Kind: history.Granted, Service: "etcd ×3", Trial: `a "b" \ <c>`, Process: "p\n", Caller: -7, Name: "n",
		Token: 1<<64 - 1, Until: -1, Seq: 1 << 63, Fault: "f", Value: 1<<63 - 1, Shared: true, Error: "e",
		Detail: strings.Repeat("long ", 30_000),
	}
	require.Equal(t, 15, reflect.ValueOf(full).NumField(), "an Event has fields that this test does not set")
	dir := t.TempDir()
	j, err := history.Create(filepath.Join(dir, "j.jsonl"))
	require.NoError(t, err)
	want := []history.Event{full, {Kind: history.Ask}, {Kind: history.Landed, Token: 1, Seq: 2, Process: "p"}}
	for i := range want {
		want[i].At = int64(i + 1)
		require.NoError(t, j.Write(want[i]))
	}
	require.NoError(t, j.Close())
	got, err := read(dir)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

// Journals of several processes are read in the order of time, and every write of several goroutines is
// kept, in order.
func TestJournalsAreMerged(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for _, process := range []string{"a", "b", "c"} {
		j, err := history.Create(filepath.Join(dir, process+".jsonl"))
		require.NoError(t, err)
		for range 4 {
			all.Go(func() {
				for range 500 {
					assert.NoError(t, j.Write(history.Event{Kind: history.Acted, Process: process}))
				}
			})
		}
		defer j.Close()
	}
	all.Wait()
	events, err := read(dir)
	require.NoError(t, err)
	assert.Len(t, events, 3*4*500)
	for i := range events[1:] {
		require.GreaterOrEqual(t, events[i+1].At, events[i].At)
	}
}

func TestJournalsThatCannotBeRead(t *testing.T) {
	good := `{"t":5,"k":"ask"}` + "\n"
	for _, c := range []struct{ name, text, err string }{
		{"half a line at the end", good + `{"t":6,"k":"gran`, ""},
		{"spaces", `{ "t": 5, "k": "ask" }` + "\n", ""},
		{"not JSON", good + "x\n", "j.jsonl, line 2"},
		{"half a line in the middle", good + `{"t":6,"k":` + "\n" + good, "j.jsonl, line 2"},
		{"time runs backwards", good + `{"t":4,"k":"ask"}` + "\n", "j.jsonl, line 2: time runs backwards"},
		{"empty lines", "\n", "j.jsonl, line 1"},
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "j.jsonl"), []byte(c.text), 0o600))
		events, err := read(dir)
		if c.err == "" {
			assert.NoError(t, err, c.name)
			assert.Equal(t, []history.Event{{At: 5, Kind: history.Ask}}, events, c.name)
		} else {
			assert.ErrorContains(t, err, c.err, c.name)
		}
	}
	_, err := read(t.TempDir())
	assert.ErrorContains(t, err, "no journal")
	_, err = history.LoadRun(t.TempDir())
	assert.ErrorContains(t, err, "not the directory of a run")
}

// A hold without a deadline has an Until that is a hundred years away: see locker.Lease.
func TestTimes(t *testing.T) {
	assert.Zero(t, history.Until(time.Now().AddDate(100, 0, 0)))
	assert.InDelta(t, history.Now()+60e9, history.Until(time.Now().Add(time.Minute)), 1e9)
	for ns, want := range map[int64]string{0: "0s", 1234: "1.234µs", 123_456: "123µs", 12_345_678: "12.3ms",
		1_234_567_890: "1.23s", 123_456_789_012: "2m3s"} {
		assert.Equal(t, want, history.Duration(ns))
	}
}
