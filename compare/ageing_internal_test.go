package compare

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/lab"
)

func TestAgeingRedis(t *testing.T)     { ages(t, "redis") }
func TestAgeingRedlock(t *testing.T)   { ages(t, "redlock") }
func TestAgeingEtcd(t *testing.T)      { ages(t, "etcd") }
func TestAgeingZooKeeper(t *testing.T) { ages(t, "zookeeper") }
func TestAgeingPostgres(t *testing.T)  { ages(t, "postgres") }

// What time brings is survived: leases last, waiters get in, calls return, and nobody holds what another holds.
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
