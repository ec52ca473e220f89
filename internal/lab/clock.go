package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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

// jumpOf moves the clock of a server, and returns when the server tells the new time.
func (c *clock) jumpOf(t TB, p *Process, d time.Duration, tells func() (time.Time, error)) {
	t.Helper()
	if c == nil {
		t.Fatalf("lab: %s was not started with a clock that jumps", p.name)
	}
	c.jump(t, d)
	err := p.ready(func() error {
		now, err := tells()
		if off := now.Sub(c.now()); err == nil && off.Abs() > time.Second {
			err = fmt.Errorf("lab: its clock is off by %v", off)
		}
		return err
	})
	if err != nil {
		t.Fatalf("lab: move the clock of %s: %v", p.name, err)
	}
}

// readAlways has a server look at the file each time that it asks for the time.
const readAlways = "FAKETIME_NO_CACHE=1"

// JumpClock moves the server's wall clock by d, forward or (negative) back, and returns when the server
// tells the new time. Jumps add up, and outlive a restart. The monotonic clock is not moved. The server
// must have been started [WithClock] and must be running.
func (r *Redis) JumpClock(t TB, d time.Duration) {
	t.Helper()
	r.clock.jumpOf(t, r.Process, d, r.Time)
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
	return time.Unix(seconds, micros*1000), err
}

// JumpClock moves the server's wall clock by d, as [Redis.JumpClock] does. The server must have been started
// [WithPostgresClock].
func (s *Postgres) JumpClock(t TB, d time.Duration) {
	t.Helper()
	s.clock.jumpOf(t, s.Process, d, func() (time.Time, error) {
		text, err := s.query(doTimeout, "SELECT extract(epoch FROM clock_timestamp())::float8")
		if err != nil {
			return time.Time{}, err
		}
		seconds, err := strconv.ParseFloat(text, 64)
		return time.Unix(0, int64(seconds*1e9)), err
	})
}

// ZooKeeperClock is a wall clock for servers.
type ZooKeeperClock struct{ clock *clock }

// WithZooKeeperClock starts the servers with a clock that [ZooKeeperClock.Jump] moves. Without
// libfaketime the test is skipped.
func WithZooKeeperClock(c *ZooKeeperClock) ZooKeeperOption {
	return func(z *zooConfig) { z.clock = c.clock }
}

// NewZooKeeperClock returns a clock that is right.
func NewZooKeeperClock(t TB) *ZooKeeperClock {
	t.Helper()
	return &ZooKeeperClock{newClock(t, t.TempDir())}
}

// Jump moves the wall clock by d. Servers see it within two seconds; their monotonic clock is not moved,
// as on a real machine.
func (c *ZooKeeperClock) Jump(t TB, d time.Duration) {
	t.Helper()
	c.clock.jump(t, d)
}

// Now returns what the clock says.
func (c *ZooKeeperClock) Now() time.Time { return c.clock.now() }
