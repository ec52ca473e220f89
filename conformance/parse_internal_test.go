package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
)

// capable is a kit of a service that can do all that scripts may ask for.
func capable() *kit {
	k := &kit{g: locker.Guarantees{Shared: locker.SharingWithTokens, MaxMinHold: time.Hour, SurvivesFailover: true,
		SurvivesClockJump: true, ServerCrashes: 1}, passes: true, raises: true, operates: true, expires: true, virtual: true}
	nothing := func(T, int) func() { return func() {} }
	k.h = Harness{Cut: func(T) (driver.Backend, Fault) { return nil, nil }, Delete: func(T, string) {}, Restart: func(T) {},
		CutSome:  func(T, []int) (driver.Backend, Fault) { return nil, nil },
		Failover: func(T) {}, Crash: nothing, Hang: nothing, JumpClock: func(T, time.Duration) {}}
	k.longest = 366 * 24 * time.Hour
	k.times(time.Second, 1)
	return k
}

func TestAScriptIsReadAsItIsWritten(t *testing.T) {
	k := capable()
	cells, all := k.cells(), map[verb]bool{}
	for n := range 1000 {
		sc := k.script(cells, 7, n)
		steps, err := parse(sc.String())
		require.NoError(t, err, sc.String())
		for i, s := range sc.steps {
			all[s.do] = true
			switch s.do { // the rest means nothing
			case doPause:
				s = step{do: s.do, ttl: s.ttl}
			case doServers:
				s = step{do: s.do, who: other, server: s.server}
			case doFault, doCancel, doClose, doFinish:
				s = step{do: s.do, who: s.who, fault: s.fault}
			}
			require.True(t, s == steps[i], "%s", s)
		}
	}
	assert.Len(t, all, len(verbs)+len(plainVerbs)+3, "pause, servers and faults, too")
}

func TestWhatIsNoScriptIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"": "there is no step", " ; ": "there is no step", "a": `step 1, "a": a client cannot do ""`,
		"a acquire 0; b": `step 2, "b"`, "a acquire": "the number of a name, 0 or 1", "a acquire -1": "the number of a name",
		"a acquire 2": "the number of a name", "z acquire 0": `no client is called "z": they are a to g`,
		"ä acquire 0": "no client is called", "ab acquire 0": "no client is called", ": acquire": "no client is called",
		"a acquires 0": `a client cannot do "acquires 0"`, "a renew twice 0": "the number of a name",
		"a: requests are eaten": `no fault is called "requests are eaten"`, "a:": "no fault is called",
		"servers: moved": `nothing of servers is called "moved"`, "servers:": "nothing of servers", "pause": "invalid duration",
		"pause -1s": "-1s is out of range", "pause 1000000h": "out of range", "pause 99999999999999h": "invalid duration",
		"a acquire 0 -5s": "out of range", "a acquire 0 shared shared": "in the wrong place", "a acquire 0 1s shared": `"shared" is in the wrong place`,
		"a raise 0 5s": "in the wrong place", "a acquire 0 by 5": "invalid duration",
		"a acquire 0 MinHold": "invalid duration", "a acquire 0 label": "invalid syntax", "a acquire 0 label 99": "99 is out of range",
		"a acquire 0 label -2": "out of range", "a renew 0 before -9": "out of range", "a renew 0 before x": "invalid syntax",
		"a raise 0 by 9999999999999999999": "out of range", "a acquire 0 0s": "out of range",
		"a acquire 0 briefly briefly": "invalid duration", strings.Repeat("a acquire 0;", 1001): "more than 1000 steps",
		"a acquire 0\x00": "the number of a name", "a acquire 0 {}": "invalid duration",
	} {
		_, err := parse(text)
		require.ErrorContains(t, err, want, text)
		assert.NotContains(t, err.Error(), "\n")
		assert.Less(t, len(err.Error()), 300)
	}
	steps, err := parse("  a  acquire\n 0 60s label 1 ;b wait 0;\n")
	require.NoError(t, err, "as somebody pastes it")
	assert.Equal(t, "a acquire 0 1m0s label 1; b wait 0", script{steps: steps}.String())
}

func FuzzParse(f *testing.F) {
	f.Add("a acquire 0 shared 1m0s MinHold 2s label 3 briefly; servers: restarted; a: replies are lost; pause 5ms; b raise 1 by -1")
	f.Fuzz(func(t *testing.T, text string) {
		if steps, err := parse(text); err == nil {
			again, err := parse(script{steps: steps}.String())
			require.NoError(t, err)
			require.Equal(t, steps, again)
		}
	})
}
