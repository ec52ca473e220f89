package backends_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// older are modules as a program may have them that has not been touched for two
// years. That does not mean that this library works with them.
var older = map[string]string{
	"github.com/redis/go-redis/v9":        "v9.7.0",
	"github.com/jackc/pgx/v5":             "v5.6.0",
	"github.com/prometheus/client_golang": "v1.19.0",
	"github.com/spf13/cobra":              "v1.8.0",
	"github.com/stretchr/testify":         "v1.9.0",
	"go.etcd.io/etcd/client/v3":           "v3.5.16",
	"go.opentelemetry.io/otel":            "v1.24.0",
	"go.uber.org/zap":                     "v1.26.0",
	"golang.org/x/net":                    "v0.26.0",
	"golang.org/x/sys":                    "v0.20.0",
	"golang.org/x/text":                   "v0.16.0",
	"golang.org/x/time":                   "v0.5.0",
	"google.golang.org/grpc":              "v1.65.0",
	"google.golang.org/protobuf":          "v1.34.0",
}

// Adding this library to a program moves its modules to what go.mod asks for, and
// no further. go.mod asks for the oldest versions that work and have no known
// holes; CONTRIBUTING.md says which and why.
func TestAProgramsModulesMoveNoFurtherThanOurs(t *testing.T) {
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	ours := requirements(t, root)
	for name, versions := range map[string]map[string]string{"older": older, "the same": ours} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mod := fmt.Sprintf("module example.com/consumer\n\ngo 1.24\n\nreplace "+
				"github.com/golockers/locker => %s\n\nrequire github.com/golockers/locker v0.0.0\n", root)
			for path, version := range versions {
				mod += fmt.Sprintf("require %s %s\n", path, version)
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600))
			selected := strings.Split(goCommand(t, dir, "list", "-mod=mod", "-m", "-f",
				"{{.Path}} {{.Version}}", "all"), "\n")
			require.Greater(t, len(selected), len(versions))
			for _, line := range selected {
				path, version, _ := strings.Cut(line, " ")
				had, mine := versions[path]
				switch asked, also := ours[path]; {
				case !mine:
				case also:
					assert.Equal(t, asked, version, path)
				default:
					assert.Equal(t, had, version, "%s, which this library does not use", path)
				}
			}
		})
	}
}

// requirements are the modules that the go.mod in dir names.
func requirements(t *testing.T, dir string) map[string]string {
	t.Helper()
	var mod struct {
		Require []struct{ Path, Version string }
	}
	require.NoError(t, json.Unmarshal([]byte(goCommand(t, dir, "mod", "edit", "-json")), &mod))
	versions := map[string]string{}
	for _, r := range mod.Require {
		versions[r.Path] = r.Version
	}
	require.NotEmpty(t, versions)
	return versions
}

func goCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	require.NoError(t, err, "go %s: %s", strings.Join(args, " "), problems.String())
	return strings.TrimSpace(string(out))
}
