//go:build unix

package main

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A lease that is over by its own time gives the command none after that.
func TestALeaseThatIsOverGivesNoGrace(t *testing.T) {
	lease, err := locker.New(memory.New(), nil).Lock(t.Context(), "a", locker.MaxHold(300*time.Millisecond))
	require.NoError(t, err)
	j := &job{session: &session{lease: lease}}
	j.schedule()
	require.NoError(t, j.reason)
	<-lease.Done()
	j.schedule()
	require.ErrorIs(t, j.reason, locker.ErrLost)
	assert.LessOrEqual(t, left(j.kill), time.Duration(0))
}

// A guard that is late hears what locker has to say first, but not for long. Only a renewal gives the command more time.
func TestAGuardThatIsLateHearsLockerFirst(t *testing.T) {
	now := time.Now()
	at := func(terminate, kill time.Duration) order {
		return order{Terminate: now.Add(terminate).UnixNano(), Kill: now.Add(kill).UnixNano()}
	}
	const s, ms = time.Second, time.Millisecond
	for what, c := range map[string]struct {
		old, said          order // said: nothing if it is zero
		terminated, killed bool
		waits              time.Duration
	}{
		"in time":                   {old: at(20*s, 30*s)},
		"nothing is said":           {old: at(-s, 20*s), terminated: true, waits: shortGrace/2 - ms},
		"as before":                 {old: at(-s, 20*s), said: order{Do: doLetGo}, terminated: true},
		"too late":                  {old: at(-2*s, -s), terminated: true, killed: true},
		"renewed":                   {old: at(-2*s, -s), said: at(20*s, 30*s)},
		"its lock is found missing": {old: at(-2*s, -s), said: at(-3*s, 20*s), terminated: true, killed: true},
	} {
		t.Run(what, func(t *testing.T) {
			locker, own, err := pair()
			require.NoError(t, err)
			require.NoError(t, unix.SetNonblock(own, true))
			child, woken, err := pair()
			require.NoError(t, err)
			defer func() { // one after the other
				for _, fd := range []int{locker, own, child, woken} {
					_ = unix.Close(fd)
				}
			}()
			guard := sentry{locker: own, gate: -1, woken: woken}
			guard.obey(c.old)
			guard.letGo = true
			began := time.Now()
			killed := guard.due()
			assert.False(t, guard.terminated)
			if c.said.Do != doNothing {
				c.said.Terminate, c.said.Kill = c.old.Terminate, c.old.Kill
			}
			if c.said != (order{}) {
				b, _ := binary.Append(nil, binary.BigEndian, c.said)
				_, err = unix.Write(locker, b)
				require.NoError(t, err)
			}
			for !guard.terminated && left(guard.terminate) <= 0 {
				_, err = unix.Write(child, []byte{0}) // as if one had changed
				require.NoError(t, err)
				require.True(t, guard.hear(guard.wait()))
				killed = guard.due()
			}
			assert.Equal(t, c.terminated, guard.terminated)
			assert.Equal(t, c.killed, killed)
			assert.GreaterOrEqual(t, time.Since(began), c.waits)
		})
	}
}
