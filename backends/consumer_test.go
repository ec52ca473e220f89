package backends_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

const module = "github.com/golockers/locker"

// imports are kinds of programs: what one imports of this library, and the drivers that come with it.
var imports = map[string]struct{ packages, drivers []string }{
	"a library that takes a Locker": {packages: []string{""}},
	"all that needs no driver": {packages: []string{"", "/adapt", "/bridge", "/cas", "/cas/kubernetes", "/cas/sqlstore",
		"/conformance", "/driver", "/election", "/fencing", "/fencing/fileguard", "/fencing/httpguard", "/fencing/sqlguard",
		"/file", "/lockertest", "/memory", "/slots"}},
	"Redis": {[]string{"/single", "/redlock", "/fencing/redisguard"}, []string{"github.com/redis/go-redis/v9"}},
	"etcd": {[]string{"/etcd"}, []string{"go.etcd.io/etcd/client/v3", "go.etcd.io/etcd/api/v3/mvccpb",
		"google.golang.org/grpc", "go.uber.org/zap"}},
	"ZooKeeper":  {[]string{"/zookeeper"}, []string{"github.com/go-zookeeper/zk"}},
	"PostgreSQL": {[]string{"/postgres", "/fencing/pgxguard"}, []string{"github.com/jackc/pgx/v5", "github.com/jackc/puddle/v2"}},
	"MySQL":      {[]string{"/cas/mysql"}, []string{"github.com/go-sql-driver/mysql"}},
	"NATS":       {[]string{"/cas/nats"}, []string{"github.com/nats-io/nats.go"}},
	"metrics":    {[]string{"/observe/prometheus"}, []string{"github.com/prometheus/client_golang/prometheus"}},
	"traces": {[]string{"/observe/otel"}, []string{"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/metric",
		"go.opentelemetry.io/otel/trace", "go.opentelemetry.io/otel/sdk/trace", "go.opentelemetry.io/otel/sdk/metric"}},
	"gRPC": {[]string{"/fencing/grpcguard"}, []string{"google.golang.org/grpc",
		"google.golang.org/genproto/googleapis/rpc/errdetails"}},
}

// With the root module no module of a program moves. A backend moves what its driver moves that is added by itself, in
// the version that the backend's go.mod asks for, and nothing else: ten public programs, whose modules are in
// testdata/programs, add each of them.
func TestProveNoModuleOfAProgramMoves(t *testing.T) {
	lab.NeedProve(t) // it asks for the go.mod of what those programs require
	modules := released(t)
	files, err := filepath.Glob("testdata/programs/*.txt")
	require.NoError(t, err)
	require.Len(t, files, 10)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			had, mod := program(t, file)
			for kind, of := range imports {
				alone := maps.Clone(had)
				if len(of.drivers) > 0 {
					with, path := driversOf(t, modules, of.packages[0], of.drivers)
					alone = adding(t, mod, with, []string{path})
				}
				now := adding(t, mod, modules, of.packages)
				assert.Contains(t, now, module, "%s is not added", kind)
				for path, version := range had {
					assert.Equal(t, cmp.Or(alone[path], version), now[path], "%s moves %s, and %v alone does not", kind, path, of.drivers)
				}
			}
		})
	}
}

// A module that asks for a later version of something is noticed: this is what the test above would say of it.
func TestProveAModuleThatMovesIsNoticed(t *testing.T) {
	lab.NeedProve(t)
	modules := released(t)
	had, mod := program(t, "testdata/programs/kine.txt")
	now := adding(t, mod+"require golang.org/x/text v0.29.0\n", modules, []string{""})
	assert.NotEqual(t, had["golang.org/x/text"], now["golang.org/x/text"])
}

// released returns the directories of the modules that a release has, by path.
func released(t *testing.T) map[string]string {
	t.Helper()
	var work struct {
		Replace []struct{ Old, New struct{ Path string } }
	}
	require.NoError(t, json.Unmarshal([]byte(goCommand(t, "..", "work", "edit", "-json")), &work))
	modules := map[string]string{}
	for _, r := range work.Replace {
		dir, err := filepath.Abs(filepath.Join("..", r.New.Path))
		require.NoError(t, err)
		modules[r.Old.Path] = dir
	}
	require.Contains(t, modules, module)
	return modules
}

// program returns the modules that a program has, and a go.mod with them.
func program(t *testing.T, file string) (had map[string]string, mod string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	had, mod = map[string]string{}, "module example.com/program\n"
	for line := range strings.Lines(string(text)) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch path {
		case "#":
		case "go":
			mod += strings.TrimSpace(line) + "\n"
		default:
			had[path] = version
			mod += fmt.Sprintf("require %s %s // indirect\n", path, version)
		}
	}
	return had, mod
}

// driversOf makes a module that imports drivers in the versions for which the module of a package of ours asks.
func driversOf(t *testing.T, modules map[string]string, pkg string, drivers []string) (with map[string]string, path string) {
	t.Helper()
	asked := requiredBy(t, modules[owner(module+pkg, modules)])
	dir, path := t.TempDir(), "example.com/drivers"
	mod, text := "module "+path+"\n\ngo 1.26.0\n", "package drivers\n\n"
	for _, d := range drivers {
		of := owner(d, asked)
		mod += fmt.Sprintf("require %s %s\n", of, asked[of])
		text += fmt.Sprintf("import _ %q\n", d)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "drivers.go"), []byte(text), 0o600))
	goCommand(t, dir, "mod", "tidy")
	return map[string]string{path: dir}, path
}

// adding returns the modules of a program that imports packages of modules that are here, by path.
func adding(t *testing.T, mod string, modules map[string]string, packages []string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	main := "package main\n\n"
	for path, dir := range modules {
		mod += fmt.Sprintf("replace %s => %s\n", path, dir)
	}
	edit := []string{"mod", "edit"}
	for _, p := range packages {
		if _, whole := modules[p]; !whole {
			p = module + p
		}
		main += fmt.Sprintf("import _ %q\n", p)
		edit = append(edit, "-require="+owner(p, modules)+"@v0.0.0")
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(main+"\nfunc main() {}\n"), 0o600))
	goCommand(t, dir, edit...)
	goCommand(t, dir, "list", "-deps", ".") // as go get does, it has go.mod require what the packages need
	return requiredBy(t, dir)
}

// owner returns the module that a package is in.
func owner(pkg string, modules map[string]string) string {
	for modules[pkg] == "" && pkg != "." {
		pkg = path.Dir(pkg)
	}
	return pkg
}

// requiredBy returns what the go.mod of a directory requires.
func requiredBy(t *testing.T, dir string) map[string]string {
	t.Helper()
	var mod struct {
		Require []struct{ Path, Version string }
	}
	require.NoError(t, json.Unmarshal([]byte(goCommand(t, dir, "mod", "edit", "-json")), &mod))
	has := map[string]string{}
	for _, r := range mod.Require {
		has[r.Path] = r.Version
	}
	return has
}

func goCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = os.Environ()
	if !slices.Contains(args, "work") {
		cmd.Env = append(cmd.Env, "GOWORK=off", "GOFLAGS=-mod=mod")
	}
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	require.NoError(t, err, "go %s: %s", strings.Join(args, " "), problems.String())
	return strings.TrimSpace(string(out))
}
