package compare

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/compare/internal/check"
	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/lab"
)

func TestAgeingRedis(t *testing.T)     { ages(t, "redis") }
func TestAgeingRedlock(t *testing.T)   { ages(t, "redlock") }
func TestAgeingEtcd(t *testing.T)      { ages(t, "etcd") }
func TestAgeingZooKeeper(t *testing.T) { ages(t, "zookeeper") }
func TestAgeingPostgres(t *testing.T)  { ages(t, "postgres") }

// What time brings is survived: leases last, waiters get in, calls return, and nobody holds what another
// holds.
func ages(t *testing.T, scheme string) {
	t.Parallel()
	lab.NeedProve(t)
	all := sideBySide{t: t}
	defer all.all.Wait()
	for _, a := range lab.Ageings() {
		if a.Service != scheme {
			continue
		}
		all.run(a.Thing, func(t *testing.T) {
			f := ageingFault(a.Thing)
			report := compareOne(t, Plan{Names: 2, Only: []string{f.ID}, lab: []labService{
				{a.Service, func(b *bench) service { return startAged(b, a) }},
			}})
			require.Empty(t, report.Run.Services[0].Missing)
			assert.Empty(t, broken(report))
			tried := 0
			for _, row := range report.Rows {
				c := row.Cells[0]
				if tried += c.Trials; row.Fault != "" && c.Verdict != history.NotTried {
					t.Logf("%s: %s %d %s %s", row.Title, c.Verdict, c.Trials, c.Worst, c.Reason)
				}
			}
			assert.Positive(t, tried, "no trial counts")
		})
	}
}

// Locks that do not survive it are found out: calls that fail while no connection can be made for a moment,
// and leases that are lost.
func TestAgeingBreaksWhatIsBroken(t *testing.T) {
	t.Parallel()
	lab.NeedProve(t)
	all := sideBySide{t: t}
	defer all.all.Wait()
	for flaw, rule := range map[flaw]string{none: check.Fails, losesLeases: check.FalseLoss} {
		refused := lab.Ageing{Thing: "idle-proxy", Service: string(flaw), Start: func(t lab.TB) *lab.Aged {
			r := lab.StartRedis(t)
			p := lab.StartProxy(t, r.Addr())
			return &lab.Aged{
				URL: string(flaw) + "://" + p.Addr(), TTL: 2 * time.Second, Servers: []*lab.Process{r.Process},
				Steps: []func(lab.TB) string{func(lab.TB) string {
					p.Set(lab.Reset)
					time.AfterFunc(300*time.Millisecond, func() { p.Set(lab.Pass) })
					return "connections are refused"
				}},
			}
		}}
		all.run(string(flaw), func(t *testing.T) {
			f := ageingFault(refused.Thing)
			report := compareOne(t, Plan{Names: 2, Only: []string{f.ID}, lab: []labService{
				{refused.Service, func(b *bench) service { return startAged(b, refused) }},
			}})
			c := cell(t, report, rule, f.ID)
			assert.Equal(t, history.Broken, c.Verdict, "%+v", c)
			assert.True(t, c.Bad(), "it is declared")
		})
	}
}

// What was not seen to happen is no trial.
func TestAgeingWithoutEvidence(t *testing.T) {
	t.Parallel()
	lab.NeedProve(t)
	f := ageingFault("address")
	report := compareOne(t, Plan{Names: 2, Only: []string{f.ID}, lab: []labService{
		{"redis", func(b *bench) service {
			return startAged(b, lab.Ageing{Thing: "address", Service: "redis", Start: func(t lab.TB) *lab.Aged {
				nothing := func(lab.TB) string { return "" }
				return &lab.Aged{URL: "redis://" + lab.StartRedis(t).Addr(), Steps: []func(lab.TB) string{nothing}}
			}})
		}},
	}})
	c := cell(t, report, check.Exclusion, f.ID)
	assert.Equal(t, history.Inconclusive, c.Verdict, "%+v", c)
	assert.Zero(t, c.Trials)
}
