package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// clock is a wall clock that servers read through libfaketime, which finds in a file how far it is off.
type clock struct {
	library, file string

	mu     sync.Mutex
	offset time.Duration
}

// newClock returns a clock that is right. Without libfaketime the test is skipped.
func newClock(t TB, dir string) *clock {
	t.Helper()
	c := &clock{library: Need(t, ToolFakeLib), file: filepath.Join(dir, "clock")}
	c.jump(t, 0)
	return c
}

// environment is that of a server which reads its time from c; nil is the machine's own clock.
func (c *clock) environment() []string {
	if c == nil {
		return nil
	}
	return []string{
		// libc is preloaded after it, or Redis hangs before it gets to main.
		"LD_PRELOAD=" + c.library + ":libc.so.6",
		"FAKETIME_TIMESTAMP_FILE=" + c.file,
		// As on a real machine, where only the wall clock can be set.
		"FAKETIME_DONT_FAKE_MONOTONIC=1",
		// The server looks at the file each time that it asks for the time.
		"FAKETIME_NO_CACHE=1",
	}
}

// jump moves the clock by d. Jumps add up.
func (c *clock) jump(t TB, d time.Duration) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
	// The file is replaced, not rewritten: a server reads it at any moment.
	text := fmt.Sprintf("%+f\n", c.offset.Seconds())
	err := os.WriteFile(c.file+".next", []byte(text), 0o644)
	if err == nil {
		err = os.Rename(c.file+".next", c.file)
	}
	if err != nil {
		t.Fatalf("lab: move a clock: %v", err)
	}
}

// now is what the clock says.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

// JumpClock moves the server's wall clock by d, forward or (negative) back, and returns when the server
// tells the new time; a ZooKeeper tells none, and sees it within two seconds. Jumps add up, and outlive a
// restart. The monotonic clock is not moved. The server must have been started [WithClock] and must be running.
func (p *Process) JumpClock(t TB, d time.Duration) {
	t.Helper()
	if p.clock == nil {
		t.Fatalf("lab: %s was not started with a clock that jumps", p.name)
	}
	p.clock.jump(t, d)
	if p.tells == nil {
		return
	}
	await(t, func() error {
		before := p.clock.now()
		now, err := p.tells()
		if err == nil && (before.Sub(now) > time.Second || now.Sub(p.clock.now()) > time.Second) {
			err = fmt.Errorf("lab: its clock is off by %v", now.Sub(before))
		}
		return err
	}, p)
}
