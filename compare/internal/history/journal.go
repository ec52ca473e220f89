package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// Until is a lease's deadline for an Event: 0 if there is none, which [locker.Lease.Until] shows as one
// a hundred years away.
func Until(t time.Time) int64 {
	if clock.Endless(t) {
		return 0
	}
	return Now() + int64(time.Until(t))
}

// Journal collects the events of running trials, and writes them when a trial has ended. Its methods
// may be called from any goroutine.
type Journal struct {
	mu     sync.Mutex
	f      *os.File
	trials map[string][]Event
}

// Create creates the journal of a run in dir, which must have none.
func Create(dir string) (*Journal, error) {
	f, err := os.OpenFile(filepath.Join(dir, journalFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	return &Journal{f: f, trials: map[string][]Event{}}, nil
}

// Add adds e to its trial, with the present time if it has none, and a stall to all running trials. An
// event after the end of its trial is dropped.
func (j *Journal) Add(e Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.At == 0 {
		e.At = Now()
	}
	if e.Kind == TrialBegin {
		j.trials[e.Trial] = []Event{e}
		return
	}
	for id, events := range j.trials {
		if id == e.Trial || e.Kind == Stall && e.At > events[0].At {
			j.trials[id] = append(events, e)
		}
	}
}

// End returns the events of an ended trial, from its TrialBegin to its TrialEnd in the order of time,
// and writes them.
func (j *Journal) End(trial string) ([]Event, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	events := j.trials[trial]
	delete(j.trials, trial)
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	events = events[:1+slices.IndexFunc(events, func(e Event) bool { return e.Kind == TrialEnd })]
	var lines bytes.Buffer
	for _, e := range events {
		_ = json.NewEncoder(&lines).Encode(e)
	}
	if _, err := j.f.Write(lines.Bytes()); err != nil {
		return events, fmt.Errorf("history: %s ends here: %w", j.f.Name(), err)
	}
	return events, nil
}

// Close closes the file and returns its error.
func (j *Journal) Close() error { return j.f.Close() }
