package history_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/compare/internal/history"
)

// What a journal writes is what is read, whatever is in the strings: trial after trial, in the order of time,
// with the stalls that fall into each.
func TestJournalsComeBackAsTheyWereWritten(t *testing.T) {
	full := history.Event{
		At: 3, Kind: history.Granted, Service: "etcd ×3", Trial: "one", Process: "p\n", Caller: -7, Name: `a "b" \ <c>`,
		Token: 1<<64 - 1, Until: -1, Fault: "f", Value: 1<<63 - 1, Error: "e",
		Detail: strings.Repeat("long ", 30_000),
	}
	require.Equal(t, 13, reflect.ValueOf(full).NumField(), "an Event has fields that this test does not set")
	dir := t.TempDir()
	j, err := history.Create(dir)
	require.NoError(t, err)
	begin := func(trial string) history.Event { return history.Event{At: 2, Kind: history.TrialBegin, Trial: trial} }
	end := func(trial string) history.Event { return history.Event{At: 5, Kind: history.TrialEnd, Trial: trial} }
	before, stall := history.Event{At: 1, Kind: history.Stall}, history.Event{At: 4, Kind: history.Stall}
	late := history.Event{At: 6, Kind: history.Granted, Trial: "one"}
	for _, e := range []history.Event{begin("one"), begin("two"), before, stall, late, end("one"), end("two"), full,
		{At: 4, Kind: history.Ask, Trial: "none"}} {
		j.Add(e)
	}
	two, err := j.End("two")
	require.NoError(t, err)
	assert.Equal(t, []history.Event{begin("two"), stall, end("two")}, two)
	one, err := j.End("one")
	require.NoError(t, err)
	assert.Equal(t, []history.Event{begin("one"), full, stall, end("one")}, one)
	j.Add(full) // too late
	require.NoError(t, j.Close())
	var got []history.Event
	written, err := os.Open(filepath.Join(dir, "history.jsonl"))
	require.NoError(t, err)
	defer written.Close()
	for lines := json.NewDecoder(written); lines.More(); {
		got = append(got, history.Event{})
		require.NoError(t, lines.Decode(&got[len(got)-1]))
	}
	assert.Equal(t, append(two, one...), got)
	_, err = history.Create(dir)
	assert.ErrorIs(t, err, fs.ErrExist)
}

// A hold without a deadline has an Until that is a hundred years away: see locker.Lease.
func TestTimes(t *testing.T) {
	assert.Zero(t, history.Until(time.Now().AddDate(100, 0, 0)))
	assert.InDelta(t, history.Now()+60e9, history.Until(time.Now().Add(time.Minute)), 1e9)
	for ns, want := range map[int64]string{0: "0s", 1234: "1.23µs", 123_456: "123µs", 12_345_678: "12.3ms",
		1_234_567_890: "1.23s", 123_456_789_012: "2m3s"} {
		assert.Equal(t, want, history.Duration(ns))
	}
}
