package conformance_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
)

// A *testing.T is a T, so that a check can be run by hand.
var _ conformance.T = (*testing.T)(nil)

// proveWith runs a check against the good service, with a harness that was
// tampered with.
func proveWith(t *testing.T, k kind, check string, change func(*conformance.Harness)) (r conformance.Result) {
	t.Helper()
	inVirtualTime(t, func(t *testing.T) {
		s := newService(none)
		h := s.harness(k, time.Second)
		change(&h)
		r = conformance.Prove(t.Context(), h, checkNamed(t, check))
		close(s.end)
		time.Sleep(2 * time.Hour)
	})
	return r
}

func TestClaimWithoutItsHookFails(t *testing.T) {
	for _, c := range []struct {
		kind   kind
		check  string
		hook   string
		remove func(*conformance.Harness)
	}{
		{poor, "cut-off", "Cut", func(h *conformance.Harness) { h.Cut = nil }},
		{poor, "dead-holder", "Cut", func(h *conformance.Harness) { h.Cut = nil }},
		{queued, "dead-holder", "Victim", func(h *conformance.Harness) { h.Victim = nil }},
		{poor, "deletion", "Delete", func(h *conformance.Harness) { h.Delete = nil }},
		{rich, "restart", "Restart", func(h *conformance.Harness) { h.Restart = nil }},
		{rich, "failover", "Failover", func(h *conformance.Harness) { h.Failover = nil }},
		{rich, "server-crashes", "Crash", func(h *conformance.Harness) { h.Crash = nil }},
		{rich, "clock-jump", "JumpClock", func(h *conformance.Harness) { h.JumpClock = nil }},
	} {
		excuse := func(h *conformance.Harness) { h.Unproven = map[string]string{c.check: "it is far away"} }
		r := proveWith(t, c.kind, c.check, c.remove)
		require.Equal(t, conformance.Failed, r.Outcome, c.check)
		assert.Contains(t, r.Failures[0], "no hook "+c.hook)

		r = proveWith(t, c.kind, c.check, func(h *conformance.Harness) { c.remove(h); excuse(h) })
		assert.Equal(t, conformance.Unproven, r.Outcome, c.check)
		assert.Equal(t, "it is far away", r.Reason)

		assert.Equal(t, conformance.Passed, proveWith(t, c.kind, c.check, excuse).Outcome, "a hook that is there")
	}
	r := proveWith(t, poor, "many", func(h *conformance.Harness) { h.Unproven = map[string]string{"many": "it is small"} })
	assert.Equal(t, conformance.Unproven, r.Outcome)
}

func TestHarnessThatMakesNoSenseOrFailsIsRefused(t *testing.T) {
	var end chan struct{}
	for seen, change := range map[string]func(*conformance.Harness){
		"has no New":             func(h *conformance.Harness) { h.New = nil },
		"Harness.TTL is -1s":     func(h *conformance.Harness) { h.TTL = -time.Second },
		"no Open":                func(h *conformance.Harness) { h.Open = nil },
		`names "cutoff"`:         func(h *conformance.Harness) { h.Unproven = map[string]string{"cutoff": "a typing error"} },
		`no reason for "names"`:  func(h *conformance.Harness) { h.Unproven = map[string]string{"names": " "} },
		"a nil Backend":          func(h *conformance.Harness) { h.New = func(conformance.T) driver.Backend { return nil } },
		"panic: no such table":   func(h *conformance.Harness) { h.New = func(conformance.T) driver.Backend { panic("no such table") } },
		"did not say why":        func(h *conformance.Harness) { h.New = func(t conformance.T) driver.Backend { t.FailNow(); return nil } },
		"did not end within .*;": nil, // of a check that hangs, with the stacks
		"hangsHere":              nil,
	} {
		r := proveWith(t, poor, "exclusion", func(h *conformance.Harness) {
			if change != nil {
				change(h)
				return
			}
			end = make(chan struct{})
			h.New = func(conformance.T) driver.Backend {
				hangsHere(end)
				return nil
			}
			time.AfterFunc(time.Hour, func() { close(end) })
		})
		assert.Equal(t, conformance.Failed, r.Outcome)
		assert.Regexp(t, seen, strings.ReplaceAll(strings.Join(r.Failures, "\n"), "\n", " "))
		assert.Less(t, r.Took, 10*time.Minute)
	}
}

func hangsHere(end chan struct{}) { <-end }

func TestManyFailuresOfOneCheckAreCutShort(t *testing.T) {
	r := prove(t, vagueRefusal, poor, checkNamed(t, "exclusion"))
	assert.Len(t, r.Failures, 5)
}

func TestCheckOutsideOfGoTest(t *testing.T) {
	t.Setenv(conformance.HistoriesEnv, "5m")
	t.Setenv(lab.ProveEnv, "")
	var unproven, untold map[string]string
	check := func(f flaw, names ...string) (err error) {
		inVirtualTime(t, func(t *testing.T) {
			s := newService(f)
			h := s.harness(poor, time.Second)
			h.Unproven, h.Untold = unproven, untold
			err = conformance.Check(t.Context(), h, names...)
			close(s.end)
			time.Sleep(2 * time.Hour)
		})
		return err
	}
	require.NoError(t, check(none, "exclusion", "restart"), "what is not claimed is not broken")
	require.ErrorContains(t, check(vagueRefusal, "names", "exclusion"), "exclusion: broken promise: ")
	require.ErrorContains(t, check(none, "nonsense"), `there is no check "nonsense"`)
	untold = map[string]string{"Inspect colour": "it has none"}
	require.ErrorContains(t, check(none, "claims"), `"Inspect colour": "it has none"; give Inspect or List with one of label, time`)
	untold = nil
	// What histories alone prove is played, or is not proven.
	err := check(deletionUnnoticed, "deletion")
	require.ErrorContains(t, err, "broken promise: ")
	assert.Regexp(t, `again: CONFORMANCE_SCRIPT='a acquire 0[^']*', and the same call of Check`, err)
	require.ErrorContains(t, check(neverExpires, "dead-holder"), "broken promise: ")
	require.ErrorContains(t, check(releaseMadeUp, "cut-off"), "broken promise: ")
	unproven = map[string]string{"histories": "of two services"}
	err = check(deletionUnnoticed, "deletion", "cut-off", "dead-holder", "claims")
	require.ErrorIs(t, err, conformance.ErrUnproven)
	for _, name := range []string{"deletion", "cut-off", "dead-holder"} {
		require.ErrorContains(t, err, name+": claimed, and not proven: of two services")
	}
	unproven = map[string]string{"histories-delete": "nobody can"}
	require.ErrorIs(t, check(deletionUnnoticed, "deletion"), conformance.ErrUnproven)
}

// punctual says that it is, as package http is.
type punctual struct{ *remote }

func (punctual) Prompt() bool { return true }

// A proxy that outlives the check is the harness's, and says nothing of a backend.
func TestProxyOfTheWholeTestIsNoLeakOfABackend(t *testing.T) {
	locks := &table{rows: make(map[string]row)}
	server := httptest.NewServer(serve(locks))
	defer server.Close()
	addr := server.Listener.Addr().String()
	h := remoteHarness(addr, locks, 300*time.Millisecond)
	h.New = func(conformance.T) driver.Backend { return punctual{connect(addr)} }
	h.Cut = func(conformance.T) (driver.Backend, conformance.Fault) {
		cut, fault := conformance.Proxy(t, addr)
		return punctual{connect(cut)}, fault
	}
	r := conformance.Prove(t.Context(), h, checkNamed(t, "prompt"))
	assert.Equal(t, conformance.Passed, r.Outcome, "%v", r.Failures)
}
