package backends_test

import (
	"cmp"
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
// holes; CONTRIBUTING.md says which and why. (That nothing else moves where they are the same is what `go mod tidy`
// looks for.)
func TestAProgramsModulesMoveNoFurtherThanOurs(t *testing.T) {
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	var mod struct {
		Require []struct{ Path, Version string }
	}
	require.NoError(t, json.Unmarshal([]byte(goCommand(t, root, "mod", "edit", "-json")), &mod))
	require.NotEmpty(t, mod.Require)
	ours := map[string]string{}
	for _, r := range mod.Require {
		ours[r.Path] = r.Version
	}
	consumer := fmt.Sprintf("module example.com/consumer\n\ngo 1.24\n\nreplace "+
		"github.com/golockers/locker => %s\n\nrequire github.com/golockers/locker v0.0.0\n", root)
	for path, version := range older {
		consumer += fmt.Sprintf("require %s %s\n", path, version)
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(consumer), 0o600))
	for line := range strings.Lines(goCommand(t, dir, "list", "-mod=mod", "-m", "-f", "{{.Path}} {{.Version}}", "all")) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		if had, mine := older[path]; mine {
			assert.Equal(t, cmp.Or(ours[path], had), version, "%s: it is asked for, or this library does not use it", path)
		}
	}
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
