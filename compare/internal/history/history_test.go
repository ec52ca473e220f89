package history_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/compare/internal/history"
)

type sink struct{ bytes.Buffer }

func (*sink) Close() error { return nil }

// What a journal writes is what encoding/json would read and write, and what a
// reader gives back, whatever is in the strings.
func TestJournalsComeBackAsTheyWereWritten(t *testing.T) {
	full := history.Event{
		Kind: history.Granted, Service: "etcd ×3", Trial: `a "b" \ <c>`, Process: "p\n", Caller: -7, Name: "n",
		Token: 1<<64 - 1, Until: -1, Seq: 1 << 63, Fault: "f", Value: 1<<63 - 1, Shared: true, Error: "e",
		Detail: strings.Repeat("long ", 30_000),
	}
	if reflect.ValueOf(full).NumField() != 15 {
		t.Fatal("an Event has fields that this test does not set")
	}
	for _, e := range []history.Event{full, {Kind: history.Ask},
		{Kind: history.Landed, Token: 1, Seq: 2, Process: "p"}} {
		var out sink
		j := history.NewJournal("j", &out)
		at, err := j.Write(e)
		require.NoError(t, err)
		require.NoError(t, j.Close())
		e.At = at
		want, err := json.Marshal(e)
		require.NoError(t, err)
		assert.JSONEq(t, string(want), out.String())
		got, err := history.NewReader("j", &out).Next()
		require.NoError(t, err)
		assert.Equal(t, e, got)
	}
}

// Journals of several processes are read in the order of time, and every write
// of several goroutines is kept, in order.
func TestJournalsAreMerged(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for _, process := range []string{"a", "b", "c"} {
		j, err := history.Create(filepath.Join(dir, process+".jsonl"))
		require.NoError(t, err)
		var writers sync.WaitGroup
		for caller := range 4 {
			writers.Add(1)
			go func() {
				defer writers.Done()
				for range 500 {
					_, err := j.Write(history.Event{Kind: history.Acted, Process: process, Caller: caller})
					assert.NoError(t, err)
				}
			}()
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			writers.Wait()
			assert.NoError(t, j.Close())
		}()
	}
	wg.Wait()
	n, last := 0, int64(0)
	for e, err := range history.Read(dir) {
		require.NoError(t, err)
		require.GreaterOrEqual(t, e.At, last)
		last = e.At
		n++
	}
	assert.Equal(t, 3*4*500, n)
}

func TestJournalsThatCannotBeRead(t *testing.T) {
	good := `{"t":5,"k":"ask"}` + "\n"
	for _, c := range []struct{ name, text, err string }{
		{"half a line at the end", good + `{"t":6,"k":"gran`, ""},
		{"spaces", `{ "t": 5, "k": "ask" }` + "\n", ""},
		{"not JSON", good + "x\n", "j, line 2"},
		{"half a line in the middle", good + `{"t":6,"k":` + "\n" + good, "j, line 2"},
		{"time runs backwards", good + `{"t":4,"k":"ask"}` + "\n", "j, line 2: time runs backwards"},
		{"empty lines", "\n", "j, line 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var err error
			n := 0
			for e, failed := range history.Merge(history.NewReader("j", strings.NewReader(c.text))) {
				if err = failed; err == nil {
					assert.Equal(t, history.Event{At: 5, Kind: history.Ask}, e)
					n++
				}
			}
			if c.err == "" {
				require.NoError(t, err)
				assert.Equal(t, 1, n)
				return
			}
			assert.ErrorContains(t, err, c.err)
		})
	}
	for _, err := range history.Read(t.TempDir()) {
		assert.ErrorContains(t, err, "no journal")
	}
}

func TestAFullDiskIsSaid(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /dev/full")
	}
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	j := history.NewJournal("/dev/full", f)
	_, err = j.Write(history.Event{Kind: history.Ask})
	require.ErrorIs(t, err, syscall.ENOSPC)
	assert.ErrorContains(t, err, "Make room")
	_, again := j.Write(history.Event{Kind: history.Ask})
	assert.Equal(t, err, again)
	assert.Equal(t, err, j.Close())
}

// A write that fails in the middle leaves a journal that can be read.
func TestAJournalEndsWhereItsDiskDid(t *testing.T) {
	out := &short{room: 200}
	j := history.NewJournal("j", out)
	for range 20 {
		if _, err := j.Write(history.Event{Kind: history.Ask, Service: "s"}); err != nil {
			break
		}
	}
	require.Error(t, j.Close())
	r := history.NewReader("j", &out.Buffer)
	n := 0
	for {
		_, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		n++
	}
	assert.Positive(t, n)
}

type short struct {
	sink
	room int
}

func (s *short) Write(b []byte) (int, error) {
	if len(b) > s.room {
		n, _ := s.Buffer.Write(b[:s.room])
		s.room = 0
		return n, errors.New("no room")
	}
	s.room -= len(b)
	return s.Buffer.Write(b)
}

func TestRunsComeBack(t *testing.T) {
	dir := t.TempDir()
	run := &history.Run{Services: []history.Service{{Name: "file"}},
		Faults: []history.Fault{{ID: "cut", Class: history.Client}}}
	require.NoError(t, run.Save(dir))
	got, err := history.LoadRun(dir)
	require.NoError(t, err)
	assert.Equal(t, run, got)
	_, err = history.LoadRun(t.TempDir())
	assert.ErrorContains(t, err, "not the directory of a run")
}

// A hold without a deadline has an Until that is a hundred years away: see locker.Lease.
func TestUntil(t *testing.T) {
	assert.Zero(t, history.Until(time.Now().AddDate(100, 0, 0)))
	assert.InDelta(t, history.Now()+int64(time.Minute), history.Until(time.Now().Add(time.Minute)), float64(time.Second))
}

func TestDurations(t *testing.T) {
	for ns, want := range map[int64]string{0: "0s", 1234: "1.234µs", 123_456: "123µs", 12_345_678: "12.3ms",
		1_234_567_890: "1.23s", 123_456_789_012: "2m3s"} {
		assert.Equal(t, want, history.Duration(ns))
	}
}

func BenchmarkRead(b *testing.B) {
	var out sink
	j := history.NewJournal("j", &out)
	e := history.Event{Kind: history.Granted, Service: "redlock", Trial: "redlock-17",
		Process: "redlock-17-a", Caller: 3, Name: "compare/17", Token: 123456, Until: 1 << 50}
	for range 1000 {
		_, _ = j.Write(e)
	}
	_ = j.Close()
	b.SetBytes(int64(out.Len() / 1000))
	for i := 0; i < b.N; i += 1000 {
		for _, err := range history.Merge(history.NewReader("j", bytes.NewReader(out.Bytes()))) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
