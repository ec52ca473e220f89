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

// ProveEnv is the environment variable that asks for the tests of `make prove`, which take longer.
const ProveEnv = "LOCKER_PROVE"

// NeedProve skips the test where only those of `make test` are to run.
func NeedProve(t TB) {
	t.Helper()
	if os.Getenv(ProveEnv) != "1" {
		t.Skip("lab: it takes long: set " + ProveEnv + "=1, as `make prove` does")
	}
}

// Names of what [Need] can find.
const (
	ToolRedis   = "redis-server"
	ToolEtcd    = "etcd"
	ToolOldEtcd = "etcd-oldest" // the oldest version that is supported

	ToolEtcd35     = "etcd-3.5"                       // the minor version after ToolOldEtcd's
	ToolEtcdBefore = "etcd-before"                    // the minor version before ToolEtcd's
	ToolNewZooJar  = "zookeeper-newest/zookeeper.jar" // a later version than ToolZooJar's
	ToolJava       = "java"
	ToolZooJar     = "zookeeper.jar"
	ToolFakeLib    = "libfaketime.so"
)

// Need returns the path of an installed tool, one of the Tool constants or any other executable's name.
//
// If the environment variable named by [ToolEnv] is set, it holds the path and nothing else is tried; "-"
// is for none. Otherwise the tool is looked for where this repository builds it, in PATH, and then in the
// places where packages put it: the pinned version is the one that is tested. If it is nowhere, Need skips
// the test, or fails it where LOCKER_REQUIRE_SERVERS=1 says that everything has to be there. Either way the
// message tells how to install it.
func Need(t TB, tool string) string {
	t.Helper()
	if path := os.Getenv(ToolEnv(tool)); path == "-" {
		missing(t, "lab: "+tool+" is not installed ("+advice(tool)+")")
	} else if path != "" {
		if _, err := os.Stat(path); err != nil {
			// Never a skip: somebody asked for just this one.
			t.Fatalf("lab: %s is set, but not to an existing file: %v", ToolEnv(tool), err)
		}
		return path
	}
	if path, ok := lookUp(tool); ok {
		return path
	}
	if tool == ToolOldEtcd || tool == ToolEtcd35 || tool == ToolEtcdBefore || tool == ToolNewZooJar {
		t.Skip("lab: " + tool + " is not there: " + advice(tool) + " on Debian")
	}
	missing(t, fmt.Sprintf("lab: %s is not installed (%s, or set %s to its path)",
		tool, advice(tool), ToolEnv(tool)))
	return ""
}

// ToolEnv names the environment variable that overrides the look-up of a tool: LOCKER_REDIS_SERVER for
// redis-server, LOCKER_ETCD for etcd, and so on.
func ToolEnv(tool string) string {
	return "LOCKER_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_", "/", "_").Replace(tool))
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
	if path, ok := find(built(tool)); ok {
		return path, true
	}
	if path, err := exec.LookPath(tool); err == nil {
		if abs, err := filepath.Abs(path); err == nil {
			return abs, true
		}
	}
	return find(places(tool))
}

// find returns the first file that matches one of the patterns.
func find(patterns []string) (string, bool) {
	for _, pattern := range patterns {
		// The only error is a malformed pattern, which finds nothing as well.
		found, _ := filepath.Glob(pattern)
		if len(found) == 0 {
			continue
		}
		if abs, err := filepath.Abs(found[0]); err == nil {
			return abs, true
		}
	}
	return "", false
}

// built lists where scripts/etcd puts what it builds, seen from the directory of whatever package is tested.
func built(tool string) (at []string) {
	if !strings.HasPrefix(tool, ToolEtcd) && tool != ToolNewZooJar {
		return nil
	}
	for up, depth := "", 0; depth < 5; up, depth = up+"../", depth+1 {
		at = append(at, up+".cache/bin/"+tool)
	}
	return at
}

// places lists where packages install a tool without it being in everybody's PATH, as glob patterns.
func places(tool string) []string {
	switch tool {
	case ToolFakeLib:
		return []string{"/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1",
			"/usr/local/lib/faketime/libfaketime.so.1"}
	case ToolZooJar:
		return []string{"/usr/share/java/zookeeper.jar", "/opt/zookeeper*/lib/zookeeper-[0-9]*.jar"}
	case "postgres", "initdb", "pg_basebackup", "pgbouncer":
		return []string{"/usr/lib/postgresql/*/bin/" + tool, "/usr/local/bin/" + tool, "/usr/sbin/" + tool,
			"/opt/homebrew/bin/" + tool}
	default:
		var in []string
		for _, dir := range []string{"/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin",
			"/opt/homebrew/bin", "/snap/bin"} {
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
		return "Debian: apt install etcd-server; in this repository: scripts/etcd"
	case ToolOldEtcd:
		return "get it with scripts/etcd"
	case ToolEtcd35, ToolEtcdBefore:
		return "get it with scripts/etcd before"
	case ToolNewZooJar:
		return "get it with scripts/zookeeper"
	case ToolZooJar:
		return "Debian: apt install zookeeper"
	case ToolJava:
		return "Debian: apt install default-jre-headless"
	case ToolFakeLib:
		return "Debian: apt install libfaketime"
	case "pgbouncer":
		return "Debian: apt install pgbouncer"
	case "postgres", "initdb", "pg_basebackup":
		return "Debian: apt install postgresql; macOS: brew install postgresql"
	default:
		return "install it, put it into PATH"
	}
}
