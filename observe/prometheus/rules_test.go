package prometheus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/memory"
	"github.com/golockers/locker/observe/prometheus"
	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const docs = "../../docs/observe/"

// exposed is what a program with one lock shows to Prometheus.
func exposed(t *testing.T) *bytes.Buffer {
	t.Helper()
	metrics := prometheus.New(nil)
	registry := client.NewRegistry()
	registry.MustRegister(metrics)
	c := locktest.Must(locker.New(memory.New(), &locker.Options{Trace: metrics.Trace()}))
	defer c.Close()
	metrics.Watch(c)
	lease, err := c.Lock(t.Context(), "a", locker.TTL(locker.DefaultTTL))
	require.NoError(t, err)
	require.NoError(t, lease.Renew(t.Context()))
	require.NoError(t, lease.Unlock(t.Context()))
	metrics.Trace().TakenBack(t.Context(), locker.Event{})
	_, err = c.Lock(t.Context(), "a")
	require.NoError(t, err)
	go func() { _, _ = c.Lock(context.Background(), "a") }() // until the client is closed
	require.Eventually(t, func() bool { return len(c.Waits()) == 1 }, 30*time.Second, time.Millisecond)
	families, err := registry.Gather()
	require.NoError(t, err)
	var text bytes.Buffer
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(&text, f)
		require.NoError(t, err)
	}
	return &text
}

func TestProveExpositionAndRulesAreWhatPrometheusTakes(t *testing.T) {
	lab.NeedProve(t)
	promtool := lab.Need(t, "promtool")
	for _, args := range [][]string{
		{"check", "metrics"}, {"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"},
	} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir, cmd.Stdin = docs, exposed(t)
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, "promtool %v: %s", args, out)
	}
}

// A metric that is renamed leaves no panel and no alert behind that shows
// nothing for ever.
func TestDashboardAndRulesAskForWhatIsExposed(t *testing.T) {
	shown := regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(exposed(t).String(), -1)
	var known []string
	for _, m := range shown {
		known = append(known, m[1])
	}
	require.Len(t, known, 9)
	var dashboard struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	raw, err := os.ReadFile(docs + "dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &dashboard))
	var asked strings.Builder
	for _, p := range dashboard.Panels {
		require.NotEmpty(t, p.Targets)
		for _, target := range p.Targets {
			asked.WriteString(target.Expr + "\n")
		}
	}
	rules, err := os.ReadFile(docs + "alerts.yml")
	require.NoError(t, err)
	asked.Write(rules)
	used := map[string]bool{}
	for _, name := range regexp.MustCompile(`\blocker_[a-z_]+\b`).FindAllString(asked.String(), -1) {
		name = regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
		used[name] = true
		assert.True(t, slices.Contains(known, name), "%s is asked for and not exposed", name)
	}
	assert.Len(t, used, len(known), "every metric is shown")
}
