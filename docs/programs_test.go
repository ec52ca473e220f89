// Package docs_test runs the programs of the documentation.
package docs_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/pageprograms"
)

const examples = "../examples"

// The programs that the page on fencing quotes do what it says, each time. Those for
// SQL need its servers; internal/sqltest runs them.
func TestTheProgramsOfFencing(t *testing.T) {
	for name, addresses := range map[string]func(t *testing.T) []string{
		"redis": func(t *testing.T) []string { return []string{"localhost:6379", lab.StartRedis(t).Addr()} },
		"http":  func(t *testing.T) []string { return []string{"localhost:6379", lab.StartRedis(t).Addr()} },
		"etcd":  func(t *testing.T) []string { return []string{"localhost:2379", lab.StartEtcd(t, 1).Addrs()[0]} },
		"zookeeper": func(t *testing.T) []string {
			return []string{"localhost:2181", lab.StartZooKeeper(t).Addr()}
		},
		"file": func(*testing.T) []string { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			pageprograms.RunTwice(t, pageprograms.Build(t, examples, name, addresses(t)...), pageprograms.Story)
		})
	}
}

func TestThePageOnFencingQuotesWhatIsThere(t *testing.T) {
	assert.NotEmpty(t, pageprograms.Quotes(t, "fencing.md"))
}

func TestTheProgramOfMoving(t *testing.T) {
	const output = `before holds, meanwhile is refused: true, the token rises: true
meanwhile holds, before is refused: true, the token rises: true
meanwhile holds, after is refused: true, the token rises: true
after holds, meanwhile is refused: true, the token rises: true
after holds, meanwhile is refused: true, the token rises: true
meanwhile holds, after is refused: true, the token rises: true
meanwhile holds, before is refused: true, the token rises: true
before holds, meanwhile is refused: true, the token rises: true
before and after hold it at the same time: true
`
	pageprograms.RunTwice(t, pageprograms.Build(t, examples, "moving"), output)
	assert.NotEmpty(t, pageprograms.Quotes(t, "moving.md"))
}
