package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

func (r *Redis) clockFile() string { return filepath.Join(r.dir, "clock") }

// prepareClock returns the environment in which a server reads its clock through libfaketime.
func (r *Redis) prepareClock(t TB) []string {
	t.Helper()
	return fakeClock(t, r.clockFile())
}

// fakeClock returns the environment in which a server reads its clock through libfaketime, which finds
// in file how far it is off.
func fakeClock(t TB, file string) []string {
	t.Helper()
	library := Need(t, ToolFakeLib)
	if err := writeClock(file, 0); err != nil {
		t.Fatalf("lab: %v", err)
	}
	return []string{
		// libc is preloaded after it, or Redis hangs before it gets to main.
		"LD_PRELOAD=" + library + ":libc.so.6",
		"FAKETIME_TIMESTAMP_FILE=" + file,
		"FAKETIME_NO_CACHE=1",
		// As on a real machine, where only the wall clock can be set.
		"FAKETIME_DONT_FAKE_MONOTONIC=1",
	}
}

// writeClock tells libfaketime how far the clock is off. The file is replaced, not rewritten: the
// server reads it at any moment.
func writeClock(file string, offset time.Duration) error {
	next := file + ".next"
	text := strconv.FormatFloat(offset.Seconds(), 'f', 6, 64)
	if offset >= 0 {
		text = "+" + text
	}
	if err := os.WriteFile(next, []byte(text+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(next, file)
}

// JumpClock moves the server's wall clock by d, forward or (negative) back, and returns when the server
// tells the new time. Jumps add up, and outlive a restart. The monotonic clock is not moved. The server
// must have been started [WithClock] and must be running.
func (r *Redis) JumpClock(t TB, d time.Duration) {
	t.Helper()
	if !r.conf.clock {
		t.Fatal("lab: JumpClock needs a server started WithClock")
	}
	r.mu.Lock()
	r.jump += d
	offset := r.jump
	err := writeClock(r.clockFile(), offset)
	r.mu.Unlock()
	if err != nil {
		t.Fatalf("lab: move the clock of %s: %v", r.name, err)
	}
	err = r.ready(func() error {
		now, err := r.Time()
		if err != nil {
			return err
		}
		if off := now.Sub(time.Now().Add(offset)).Abs(); off > time.Second {
			return fmt.Errorf("lab: its clock is off by %v", off)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("lab: move the clock of %s: %v", r.name, err)
	}
}

// Time returns the server's wall clock.
func (r *Redis) Time() (time.Time, error) {
	reply, err := r.Do("TIME")
	if err != nil {
		return time.Time{}, err
	}
	parts, _ := reply.([]any)
	if len(parts) != 2 {
		return time.Time{}, fmt.Errorf("lab: TIME answered %v", reply)
	}
	seconds, err := strconv.ParseInt(fmt.Sprint(parts[0]), 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	micros, err := strconv.ParseInt(fmt.Sprint(parts[1]), 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(seconds, micros*1000), nil
}
