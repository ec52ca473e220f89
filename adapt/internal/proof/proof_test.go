//go:build unix

package proof_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/single"
)

const (
	ttl  = 2 * time.Second
	soon = 30 * time.Second
)

func TestMain(m *testing.M) {
	lab.RunRole(lab.Roles{"library": play})
	m.Run()
}

// play is a process that does one job by a library, and says when it begins. The
// job ends when the process is told so.
func play(p *lab.Parent) {
	client, err := locker.Open(context.Background(), "redis://"+p.Args[0], &locker.Options{TTL: ttl}, single.Openers)
	if err != nil {
		p.Say("%v", err)
		return
	}
	p.Say("ready")
	err = libraries[p.Args[2]](context.Background(), client, p.Args[1], func() {
		p.Say("begins")
		p.Hear()
	})
	if err == nil {
		err = client.Close()
	}
	p.Say("ended %v", err)
}

// One process does the job, the other waits or skips it; the first is killed in the
// middle, and the other does it.
func TestTwoProcessesAndOneIsKilled(t *testing.T) {
	for name := range libraries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis, dir := lab.StartRedis(t).Addr(), t.TempDir()
			first := lab.StartChild(t, "library", redis, dir, name)
			first.Expect(t, "begins", soon)
			second := lab.StartChild(t, "library", redis, dir, name)
			second.Expect(t, "ready", soon)
			time.Sleep(ttl + ttl/2) // for longer than a lock lasts that nobody renews
			require.NotContains(t, second.Log(), "begins")

			first.Kill()
			killed := time.Now()
			second.Expect(t, "begins", soon)
			assert.Less(t, time.Since(killed), 20*time.Second, "a lock of the default TTL takes longer")
			second.Send(t, "end")
			assert.Equal(t, "<nil>", second.Expect(t, "ended", soon))
			require.Zero(t, second.Wait(t, soon))
		})
	}
}
