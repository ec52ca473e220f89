package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// RequireEnv is the environment variable that turns "not installed" from a skip into a failure.
const RequireEnv = "LOCKER_REQUIRE_SERVERS"

// Names of what [Need] can find.
const (
	ToolRedis   = "redis-server"
	ToolEtcd    = "etcd"
	ToolJava    = "java"
	ToolZooJar  = "zookeeper.jar"
	ToolFakeLib = "libfaketime.so"
)

// Need returns the path of an installed tool, one of the Tool constants or any other executable's name.
//
// If the environment variable named by [ToolEnv] is set, it holds the path and nothing else is tried.
// Otherwise the tool is looked up in PATH, and then in the places where packages put it. If it is
// nowhere, Need skips the test, or fails it where LOCKER_REQUIRE_SERVERS=1 says that everything has to
// be there. Either way the message tells how to install it.
func Need(t TB, tool string) string {
	t.Helper()
	if path := os.Getenv(ToolEnv(tool)); path != "" {
		if _, err := os.Stat(path); err != nil {
			// Never a skip: somebody asked for just this one.
			t.Fatalf("lab: %s is set, but not to an existing file: %v", ToolEnv(tool), err)
		}
		return path
	}
	if path, ok := lookUp(tool); ok {
		return path
	}
	missing(t, fmt.Sprintf("lab: %s is not installed (%s, or set %s to its path)", tool, advice(tool), ToolEnv(tool)))
	return ""
}

// ToolEnv names the environment variable that overrides the look-up of a tool: LOCKER_REDIS_SERVER for
// redis-server, LOCKER_ETCD for etcd, and so on.
func ToolEnv(tool string) string {
	return "LOCKER_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(tool))
}

// missing skips the test, or fails it if nothing may be missing.
func missing(t TB, message string) {
	t.Helper()
	if os.Getenv(RequireEnv) == "1" {
		t.Fatalf("%s; %s=1 forbids to skip this test", message, RequireEnv)
	}
	t.Skip(message)
}

func lookUp(tool string) (string, bool) {
	if path, err := exec.LookPath(tool); err == nil {
		if abs, err := filepath.Abs(path); err == nil {
			return abs, true
		}
	}
	for _, pattern := range places(tool) {
		// The only error is a malformed pattern, which finds nothing as well.
		found, _ := filepath.Glob(pattern)
		if len(found) > 0 {
			return found[0], true
		}
	}
	return "", false
}

// places lists where packages install a tool without it being in everybody's PATH, as glob patterns.
func places(tool string) []string {
	switch tool {
	case ToolFakeLib:
		return []string{"/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1", "/usr/local/lib/faketime/libfaketime.so.1"}
	case ToolEtcd:
		// Where scripts/etcd builds it, seen from the directory of whatever package is tested.
		return []string{".cache/bin/etcd", "../.cache/bin/etcd", "../../.cache/bin/etcd", "../../../.cache/bin/etcd", "/usr/bin/etcd", "/usr/local/bin/etcd", "/opt/homebrew/bin/etcd"}
	case ToolZooJar:
		return []string{"/usr/share/java/zookeeper.jar", "/opt/zookeeper*/lib/zookeeper-[0-9]*.jar"}
	default:
		var in []string
		for _, dir := range []string{"/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/homebrew/bin", "/snap/bin"} {
			in = append(in, filepath.Join(dir, tool))
		}
		return in
	}
}

func advice(tool string) string {
	switch tool {
	case ToolRedis:
		return "Debian: apt install redis-server; macOS: brew install redis"
	case ToolEtcd:
		return "build it with scripts/etcd"
	case ToolZooJar:
		return "Debian: apt install zookeeper"
	case ToolJava:
		return "Debian: apt install default-jre-headless"
	case ToolFakeLib:
		return "Debian: apt install libfaketime"
	default:
		return "install it, put it into PATH"
	}
}
