// Package docs_test runs the programs of the documentation.
package docs_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/pageprograms"
)

// A reader can paste each program of fencing.md, and it says what the page says, each time. Those for SQL need drivers; internal/sqltest runs them.
func TestTheProgramsOfFencing(t *testing.T) {
	server := map[string]func(t *testing.T) (documented, real string){
		"memory": nil, "file": nil, "http": nil,
		"redis": func(t *testing.T) (string, string) { return "localhost:6379", lab.StartRedis(t).Addr() },
		"etcd": func(t *testing.T) (string, string) {
			return "localhost:2379", lab.StartEtcd(t, 1).Addrs()[0]
		},
		"zookeeper": func(t *testing.T) (string, string) { return "localhost:2181", lab.StartZooKeeper(t).Addr() },
	}
	for _, p := range pageprograms.Read(t, "fencing.md") {
		if strings.Contains(p.Text, "sqlguard") {
			continue
		}
		start, known := server[p.Name]
		require.True(t, known, p.Name)
		delete(server, p.Name)
		t.Run(p.Name, func(t *testing.T) {
			documented, addr := "", ""
			if start != nil {
				documented, addr = start(t)
			}
			p.RunTwice(t, documented, addr)
		})
	}
	assert.Empty(t, server, "programs that the page does not have any more")
}
