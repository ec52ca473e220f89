package docs_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Dependencies point one way: a backend needs package driver, and not what is built on locks. So a library
// that takes a locker.Locker links nothing else, and package locker links no backend.
func TestDependenciesPointOneWay(t *testing.T) {
	const module = "github.com/golockers/locker"
	onLocks := []string{"adapt", "backends", "bridge", "cmd", "compare", "conformance", "election", "fencing", "lockertest",
		"observe", "slots", "cas/castest",
		"internal/campaign", "internal/carried", "internal/contest", "internal/guardtest", "internal/locktest", "internal/sqlmark"}
	forLibraries := []string{"slots", "election", "adapt", "observe"}
	backends := []string{"memory", "file", "single", "redlock", "etcd", "zookeeper", "postgres", "cas"}
	is := func(pkg string, one string) bool { return pkg == one || strings.HasPrefix(pkg, one+"/") }

	list := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Deps " "}}`, module+"/...")
	list.Stderr = os.Stderr
	out, err := list.Output()
	require.NoError(t, err)
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		all := strings.Fields(line)
		pkg, deps := strings.TrimPrefix(strings.TrimPrefix(all[0], module), "/"), all[1:]
		var ours []string
		for _, dep := range deps {
			if is(dep, module) {
				ours = append(ours, strings.TrimPrefix(strings.TrimPrefix(dep, module), "/"))
			}
		}
		if pkg != "" && slices.Contains(ours, "") {
			may := slices.ContainsFunc(onLocks, func(one string) bool { return is(pkg, one) })
			assert.Truef(t, may, "%s imports package locker, directly or not: a backend imports package driver", pkg)
		}
		if slices.ContainsFunc(forLibraries, func(one string) bool { return is(pkg, one) }) {
			for _, one := range backends {
				assert.NotContainsf(t, ours, one, "%s is for libraries that take a Locker, and links a backend", pkg)
			}
		}
		for _, one := range backends {
			for _, other := range backends {
				if is(pkg, one) && other != one && pkg != "cas/castest" {
					assert.NotContainsf(t, ours, other, "%s is a backend, and imports another", pkg)
				}
			}
		}
		switch pkg {
		case "driver":
			assert.Equal(t, []string{"internal/clock"}, ours)
		case "":
			assert.ElementsMatch(t, []string{"driver", "internal/clock", "internal/label", "internal/oneline"}, ours)
			standard := func(dep string) bool { return !strings.Contains(strings.Split(dep, "/")[0], ".") }
			assert.Len(t, slices.DeleteFunc(deps, standard), len(ours), "all else is the standard library's")
		}
		seen[pkg] = true
	}
	for _, pkg := range append(backends, "", "driver", "cas/kubernetes", "bridge") {
		assert.True(t, seen[pkg], pkg)
	}
}

// Who takes a locker.Locker takes the root module: it asks for what its tests need and for x/sys, for no driver, and
// for no other module of this repository.
func TestTheRootModuleHasNoDriver(t *testing.T) {
	text, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	var direct []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 && strings.HasPrefix(fields[1], "v") {
			direct = append(direct, fields[0])
		}
	}
	assert.Equal(t, []string{"github.com/stretchr/testify", "go.uber.org/goleak", "golang.org/x/sys"}, direct)
	assert.NotContains(t, string(text), "replace")
}
