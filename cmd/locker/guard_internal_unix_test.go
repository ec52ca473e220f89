//go:build unix

package main

import (
	"encoding/binary"
	"io"
	"os"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A lease that is over by its own time gives the command none after that.
func TestALeaseThatIsOverGivesNoGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease, err := locktest.Client(t, memory.New(), nil).Lock(t.Context(), "a", locker.MaxHold(time.Minute))
		require.NoError(t, err)
		j := &job{session: &session{lease: lease}}
		j.schedule()
		require.NoError(t, j.reason)
		<-lease.Done()
		j.schedule()
		require.ErrorIs(t, j.reason, locker.ErrLost)
		assert.LessOrEqual(t, left(j.kill), time.Duration(0))
	})
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
			locker, own := ends(t)
			child, woken := ends(t)
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
				require.NoError(t, binary.Write(locker, binary.BigEndian, c.said))
			}
			for !guard.terminated && left(guard.terminate) <= 0 {
				_, err := child.Write([]byte{0}) // as if one had changed
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

// What a guard cannot be told, since it has not read for long, it is told later: once, and in order.
func TestAGuardThatDoesNotReadIsToldLater(t *testing.T) {
	guard, own := ends(t)
	p := &process{orders: own}
	const more = 3
	sent := 0
	for len(p.untold) < more && sent < 100_000 {
		sent++
		p.tell(int64(sent))
	}
	require.Len(t, p.untold, more)
	for n := range sent {
		if n == more { // now there is space
			p.endAt(time.Unix(1, 0), time.Unix(2, 0))
		}
		var o order
		require.NoError(t, binary.Read(guard, binary.BigEndian, &o))
		require.EqualValues(t, n+1, o.Do)
		if n == sent-1 {
			assert.NotZero(t, o.Kill)
		}
	}
	assert.Empty(t, p.untold)
}

// A command that was killed at its gate was not run.
func TestACommandThatWasKilledAtItsGateWasNotRun(t *testing.T) {
	lockers, own := ends(t)
	gate, guards := ends(t)
	_, err := gate.Write(make([]byte, gateLen)) // it waits
	require.NoError(t, err)
	require.NoError(t, gate.Close())
	guard := sentry{locker: own, gate: guards, command: 1}
	guard.reaped(1, syscall.WaitStatus(syscall.SIGKILL))
	var r report
	require.NoError(t, binary.Read(lockers, binary.BigEndian, &r))
	assert.Equal(t, report{reportUnrun, int32(syscall.ESRCH)}, r)
	j := &job{session: &session{lease: &locker.Lease{}}, letGo: true} // meanwhile
	j.heard(r)
	assert.True(t, j.over)
	assert.ErrorContains(t, j.unrun, "ended before it began")
}

// A command that is let go too late is not run: the guard refuses that, and the command itself, if its guard was stopped.
func TestACommandThatIsLetGoTooLateIsNotRun(t *testing.T) {
	late := order{Do: doLetGo, Terminate: time.Now().UnixNano()}
	lockers, own := ends(t)
	gate, guards := ends(t)
	guard := sentry{locker: own, gate: guards, command: 1}
	guard.obey(late)
	require.False(t, guard.letGo)
	var r report
	require.NoError(t, binary.Read(lockers, binary.BigEndian, &r))
	assert.Equal(t, report{reportUnrun, 0}, r)
	_, err := gate.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the command ends, too")

	gate, commands := ends(t)
	require.NoError(t, unix.SetNonblock(commands, false))
	require.NoError(t, binary.Write(gate, binary.BigEndian, late.Terminate))
	// If it were not refused, this process would become the command.
	assert.Equal(t, statusLost, beGate([]string{strconv.Itoa(commands), "true", "/bin/sh", "sh", "-c", "exit 3"}))
	said := make([]byte, 2*gateLen)
	_, err = io.ReadFull(gate, said)
	require.NoError(t, err)
	assert.Equal(t, make([]byte, 2*gateLen), said, "it waits; it was not run, and no error is why")
}

// ends are those of a socket: the test's, and the one of what is tested, which does not block, and is closed by what is
// tested, or with the process.
func ends(t *testing.T) (tests *os.File, tested int) {
	t.Helper()
	one, tested, err := pair()
	require.NoError(t, err)
	require.NoError(t, unix.SetNonblock(tested, true))
	tests = os.NewFile(uintptr(one), "test")
	t.Cleanup(func() { _ = tests.Close() })
	return tests, tested
}
