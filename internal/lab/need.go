package lab

import (
	"cmp"
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

	ToolEtcd35     = "etcd-3.5"    // the minor version after ToolOldEtcd's
	ToolEtcdBefore = "etcd-before" // the minor version before ToolEtcd's
	ToolNATS       = "nats-server"
	ToolKubernetes = "kube-apiserver"
	ToolNewZooJar  = "zookeeper-newest/zookeeper.jar" // a later version than ToolZooJar's
	ToolJava       = "java"
	ToolZooJar     = "zookeeper.jar"
	ToolFakeLib    = "libfaketime.so"
)

// tool says how one is had and found.
type tool struct {
	advice string   // how to install it
	places []string // where packages put it beside bins, as glob patterns
	built  bool     // this repository builds it, or fetches it
	extra  bool     // it is never required
}

var (
	bins = []string{"/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/", "/opt/homebrew/bin/",
		"/snap/bin/", "/usr/lib/postgresql/*/bin/"}
	tools = map[string]tool{
		ToolRedis:      {advice: "Debian: apt install redis-server; macOS: brew install redis"},
		ToolEtcd:       {advice: "Debian: apt install etcd-server; in this repository: scripts/build etcd", built: true},
		ToolOldEtcd:    {advice: "get it with scripts/etcd on Debian", built: true, extra: true},
		ToolEtcd35:     {advice: "get it with scripts/etcd before on Debian", built: true, extra: true},
		ToolEtcdBefore: {advice: "get it with scripts/etcd before on Debian", built: true, extra: true},
		ToolNATS:       {advice: "in this repository: scripts/build nats-server", built: true},
		ToolKubernetes: {advice: "in this repository: scripts/build kube-apiserver", built: true},
		ToolNewZooJar:  {advice: "get it with scripts/zookeeper on Debian", built: true, extra: true},
		ToolZooJar: {advice: "Debian: apt install zookeeper",
			places: []string{"/usr/share/java/zookeeper.jar", "/opt/zookeeper*/lib/zookeeper-[0-9]*.jar"}},
		ToolJava: {advice: "Debian: apt install default-jre-headless"},
		ToolFakeLib: {advice: "Debian: apt install libfaketime", places: []string{
			"/usr/lib*/faketime/libfaketime.so.1", "/usr/lib/*/faketime/libfaketime.so.1",
			"/usr/local/lib/faketime/libfaketime.so.1"}},
		"postgres": {advice: "Debian: apt install postgresql; macOS: brew install postgresql"},
	}
)

// Need returns the path of an installed tool, one of the Tool constants or any other executable's name.
//
// If the environment variable named by [ToolEnv] is set, it holds the path and nothing else is tried; "-"
// is for none. Otherwise the tool is looked for where this repository builds it, in PATH, and then in the
// places where packages put it: the pinned version is the one that is tested. If it is nowhere, Need skips
// the test, or fails it where LOCKER_REQUIRE_SERVERS=1 says that everything has to be there. Either way the
// message tells how to install it.
func Need(t TB, name string) string {
	t.Helper()
	is := tools[name]
	path := os.Getenv(ToolEnv(name))
	if path == "" {
		if path = is.find(name); path != "" {
			return path
		}
	} else if path != "-" {
		if _, err := os.Stat(path); err != nil {
			// Never a skip: somebody asked for just this one.
			t.Fatalf("lab: %s is set, but not to an existing file: %v", ToolEnv(name), err)
		}
		return path
	}
	message := fmt.Sprintf("lab: %s is not installed (%s, or set %s to its path)", name,
		cmp.Or(is.advice, "install it, put it into PATH"), ToolEnv(name))
	if os.Getenv(RequireEnv) == "1" && (path == "-" || !is.extra) {
		t.Fatalf("%s; %s=1 forbids to skip this test", message, RequireEnv)
	}
	t.Skip(message)
	return ""
}

// ToolEnv names the environment variable that overrides the look-up of a tool: LOCKER_REDIS_SERVER for
// redis-server, LOCKER_ETCD for etcd, and so on.
func ToolEnv(tool string) string {
	return "LOCKER_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_", "/", "_").Replace(tool))
}

// find returns the path of a tool; "": it is nowhere.
func (is tool) find(name string) string {
	var places []string
	for depth := range 5 { // it is built there, seen from the directory of whatever package is tested
		if is.built {
			places = append(places, strings.Repeat("../", depth)+".cache/bin/"+name)
		}
	}
	if path, err := exec.LookPath(name); err == nil {
		places = append(places, path)
	}
	places = append(places, is.places...)
	for _, bin := range bins {
		places = append(places, bin+name)
	}
	for _, place := range places {
		// The only error is a malformed pattern, which finds nothing as well.
		if found, _ := filepath.Glob(place); len(found) > 0 {
			path, _ := filepath.Abs(found[0])
			return path
		}
	}
	return ""
}
